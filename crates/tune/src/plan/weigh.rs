//! Rules are weighed one by one, each on all of its subjects, and made a plan of.

use super::document::{Change, Finding, Other, Plan, Proposal, Purpose, Unknown};
use super::now::{Now, is_same, now};
use super::subjects::{Object, Subjects};
use crate::expression::{NoAnswer, Scope};
use crate::facts::{Entry, Facts};
use crate::rules::{CompiledRule, Kind, Rule, Rules, State, Target};
use std::collections::{BTreeMap, BTreeSet};

/// What became of a rule on one subject.
enum Verdict {
    /// It holds nowhere here, or all is as it says.
    Quiet(Other),
    /// The fact is missing.
    Unknown(String),
    /// Something is to be changed.
    Changes { reason: String, note: String, changes: Vec<Change> },
    /// Something is to be said.
    Finding { reason: String, note: String },
}

impl Plan {
    /// What `rules` say of `facts`.
    ///
    /// # Errors
    /// If the facts cannot be shown to the rules.
    pub fn new(rules: &Rules, facts: &Facts, purpose: Purpose) -> Result<Plan, NoAnswer> {
        weigh_all(rules, facts, purpose)
    }
}

fn weigh_all(rules: &Rules, facts: &Facts, purpose: Purpose) -> Result<Plan, NoAnswer> {
    let subjects = Subjects::new(facts)?;
    let mut scope = Scope::new(facts, purpose.workload.word(), purpose.goal.word())?;
    let mut plan = Plan {
        purpose,
        taken: facts.taken,
        fsid: facts.cluster.fsid.clone(),
        proposals: Vec::new(),
        findings: Vec::new(),
        unknown: Vec::new(),
        others: BTreeMap::new(),
    };
    let mut proposed = BTreeSet::new();
    for compiled in rules.iter() {
        let rule = &compiled.rule;
        let mut other = |why| plan.others.entry(why).or_default().push(rule.id.clone());
        if !serves(rule, purpose) {
            other(Other::OtherPurpose);
            continue;
        }
        if rule.conflicts.iter().any(|id| proposed.contains(id)) {
            other(Other::InConflict);
            continue;
        }
        let mut quiet = BTreeSet::new();
        let mut sum = Sum::default();
        for object in subjects.of(rule.subject) {
            scope.look_at(&object.it, subjects.host(object), object.release);
            match weigh(compiled, facts, object, &scope) {
                Verdict::Quiet(why) => {
                    quiet.insert(why);
                }
                verdict => sum.add(&object.name, verdict),
            }
        }
        if sum.is_empty() {
            let why = [Other::Already, Other::NotHere, Other::NotInThisRelease];
            other(why.into_iter().find(|why| quiet.contains(why)).unwrap_or(Other::NotHere));
            continue;
        }
        if !sum.changes.is_empty() {
            proposed.insert(rule.id.clone());
        }
        sum.enter(rule, &mut plan);
    }
    plan.proposals.sort_by_key(|proposal| (proposal.risk, !proposal.removes));
    Ok(plan)
}

fn serves(rule: &Rule, purpose: Purpose) -> bool {
    (rule.goals.is_empty() || rule.goals.contains(&purpose.goal))
        && (rule.workloads.is_empty() || rule.workloads.contains(&purpose.workload))
}

/// The verdicts on a rule's subjects, put together.
#[derive(Default)]
struct Sum {
    subjects: Vec<String>,
    reason: String,
    note: String,
    changes: Vec<Change>,
    findings: Vec<String>,
    unknown: BTreeMap<String, Vec<String>>,
}

impl Sum {
    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.findings.is_empty() && self.unknown.is_empty()
    }

    fn say(&mut self, reason: String, note: String) {
        if self.reason.is_empty() {
            (self.reason, self.note) = (reason, note);
        }
    }

    fn add(&mut self, subject: &str, verdict: Verdict) {
        match verdict {
            Verdict::Quiet(_) => {}
            Verdict::Unknown(why) => self.unknown.entry(why).or_default().push(subject.to_owned()),
            Verdict::Finding { reason, note } => {
                self.say(reason, note);
                self.findings.push(subject.to_owned());
            }
            Verdict::Changes { reason, note, changes } => {
                self.say(reason, note);
                self.subjects.push(subject.to_owned());
                for change in changes {
                    if !self.changes.contains(&change) {
                        self.changes.push(change);
                    }
                }
            }
        }
    }

    /// Two values for one place are no proposal.
    fn quarrel(&self) -> Option<&Change> {
        self.changes.iter().find(|one| {
            let is_other = |two: &&Change| one.is_at(two) && one.value != two.value;
            self.changes.iter().any(|two| is_other(&two))
        })
    }

    fn enter(self, rule: &Rule, plan: &mut Plan) {
        let quarrel = self.quarrel().map(|change| {
            format!(
                "its subjects want different values of {} at {}: set them by hand",
                change.key, change.who
            )
        });
        for (why, subjects) in self.unknown {
            plan.unknown.push(Unknown { rule: rule.id.clone(), title: rule.title.clone(), subjects, why });
        }
        if let Some(why) = quarrel {
            let subjects = self.subjects;
            plan.unknown.push(Unknown { rule: rule.id.clone(), title: rule.title.clone(), subjects, why });
            return;
        }
        if !self.findings.is_empty() {
            plan.findings.push(Finding {
                rule: rule.id.clone(),
                title: rule.title.clone(),
                kind: rule.kind,
                subjects: self.findings,
                reason: self.reason.clone(),
                cost: rule.cost.clone(),
                evidence: rule.evidence.clone(),
                note: self.note.clone(),
            });
        }
        if !self.changes.is_empty() {
            plan.proposals.push(Proposal {
                rule: rule.id.clone(),
                title: rule.title.clone(),
                risk: rule.risk,
                removes: rule.kind == Kind::Remove,
                subjects: self.subjects,
                reason: self.reason,
                expect: rule.expect.clone(),
                cost: rule.cost.clone(),
                verify: rule.verify.clone(),
                evidence: rule.evidence.clone(),
                note: self.note,
                changes: self.changes,
            });
        }
    }
}

/// The rule has something to say of this release.
pub(super) fn is_worth(rule: &Rule, release: Option<i64>) -> bool {
    let standing = release.and_then(|release| rule.release.get(&release.to_string()));
    let is_worth = match standing.map(|standing| standing.state) {
        Some(State::Absent) => false,
        // A leftover is taken away where it is void, too.
        Some(State::Default | State::Void | State::Refuse) => rule.kind != Kind::Set,
        _ => true,
    };
    is_worth && release.is_none_or(|release| rule.releases.has(release))
}

fn weigh(compiled: &CompiledRule, facts: &Facts, object: &Object<'_>, scope: &Scope) -> Verdict {
    let rule = &compiled.rule;
    let release = object.release;
    let standing = release.and_then(|release| rule.release.get(&release.to_string()));
    if !is_worth(rule, release) {
        return Verdict::Quiet(Other::NotInThisRelease);
    }
    match compiled.when.holds(scope) {
        Ok(false) => return Verdict::Quiet(Other::NotHere),
        Ok(true) => {}
        Err(why) => return Verdict::Unknown(why.to_string()),
    }
    let reason = compiled.reason.show(scope);
    let note = standing.map(|standing| standing.note.clone()).unwrap_or_default();
    if !matches!(rule.kind, Kind::Set | Kind::Remove) {
        return Verdict::Finding { reason, note };
    }
    match changes(compiled, facts, scope) {
        Err(why) => Verdict::Unknown(why.to_string()),
        Ok(changes) if changes.is_empty() => Verdict::Quiet(Other::Already),
        Ok(changes) => Verdict::Changes { reason, note, changes },
    }
}

/// The changes of a rule on the subject that `scope` shows, without those that are so already.
fn changes(compiled: &CompiledRule, facts: &Facts, scope: &Scope) -> Result<Vec<Change>, NoAnswer> {
    let mut all = Vec::new();
    for part in &compiled.sets {
        let (target, observe) = (part.set.target, part.set.observe);
        let (who, key) = (part.who.fill(scope)?, part.key.fill(scope)?);
        let Some(value) = &part.value else {
            all.extend(removals(facts, target, &who, &key).into_iter().map(|(who, now)| Change {
                target,
                who,
                key: key.clone(),
                now,
                value: None,
                observe,
            }));
            continue;
        };
        let value = value.text(scope)?;
        let now = now(facts, target, &who, &key).unwrap_or_default();
        let is_set = now.set.as_deref().is_some_and(|set| is_same(set, &value));
        // A default that is the value needs no entry; one that is there and differs is changed.
        let runs = now.set.is_none()
            && !now.runs.is_empty()
            && now.runs.iter().all(|running| is_same(&running.value, &value));
        if !is_set && !runs {
            all.push(Change { target, who, key, now, value: Some(value), observe });
        }
    }
    Ok(all)
}

/// The places that hold a value which is to be taken away.
pub(super) fn removals(facts: &Facts, target: Target, who: &str, key: &str) -> Vec<(String, Now)> {
    let with_now = |who: String| now(facts, target, &who, key).map(|now| (who, now));
    match target {
        Target::Config => {
            let is_meant = |entry: &&Entry| entry.key == key && (who == "*" || entry.whole_who() == who);
            facts
                .cluster
                .config
                .iter()
                .filter(is_meant)
                .filter_map(|entry| with_now(entry.whole_who()))
                .collect()
        }
        Target::File => with_now(who.to_owned())
            .into_iter()
            .filter(|(host, now)| is_in_file(facts, host, key, now))
            .collect(),
        // Nothing is set there: the daemon has what nobody set.
        Target::Daemon => vec![(who.to_owned(), Now::default())],
        _ => Vec::new(),
    }
}

/// The file of a host has the option. An OSD does not say so of a value that it could not take.
fn is_in_file(facts: &Facts, host: &str, key: &str, now: &Now) -> bool {
    let conf = facts.host(host).and_then(|host| host.conf.as_ref());
    now.runs.iter().any(|running| running.source == "file") || conf.is_some_and(|conf| conf.contains_key(key))
}
