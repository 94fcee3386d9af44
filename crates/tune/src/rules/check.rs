//! The schema of rules, as far as types do not say it.

use super::compiled::CompiledRule;
use super::options::OptionTable;
use super::rule::{Kind, Rule, State, Target};
use crate::expression::{Expression, SIZES, VARIABLES};
use std::collections::BTreeSet;

/// Releases that each rule must say something of.
const RELEASES: [&str; 3] = ["16", "18", "20"];
/// The longest title, characters.
const TITLE: usize = 60;

/// One rule by itself.
pub(super) fn one(rule: &Rule) -> Result<(), String> {
    let want = |holds: bool, why: &str| if holds { Ok(()) } else { Err(why.to_owned()) };
    want(rule.title.chars().count() <= TITLE, "its title has more than 60 characters")?;
    want(!rule.evidence.is_empty(), "it has no evidence")?;
    let empty = [&rule.reason, &rule.expect, &rule.cost, &rule.verify, &rule.when]
        .iter()
        .any(|t| t.trim().is_empty());
    want(!empty, "a text of it is empty")?;
    want(rule.releases.from <= rule.releases.to, "its releases end before they begin")?;
    for release in RELEASES {
        want(rule.release.contains_key(release), &format!("it says nothing of release {release}"))?;
    }
    match rule.kind {
        Kind::Check | Kind::Advice => {
            want(rule.sets.is_empty(), "a rule of its kind sets nothing, and it sets something")?
        }
        Kind::Set => {
            want(!rule.sets.is_empty(), "it sets nothing")?;
            want(rule.sets.iter().all(|set| set.value.is_some()), "it sets something without a value")?;
        }
        Kind::Remove => want(!rule.sets.is_empty(), "it names nothing to take away")?,
        Kind::Refuse => {}
    }
    Ok(())
}

/// The names in its expressions, and its options.
pub(super) fn names(compiled: &CompiledRule) -> Result<(), String> {
    let rule = &compiled.rule;
    let mut expressions: Vec<&Expression> = vec![&compiled.when];
    expressions.extend(compiled.reason.expressions());
    for set in &compiled.sets {
        expressions.extend(set.who.expressions().chain(set.key.expressions()).chain(&set.value));
    }
    for expression in expressions {
        if let Some(name) = expression.lacks().first() {
            return Err(format!("'{name}' is no function of conditions"));
        }
        let known = |name: &String| {
            VARIABLES.contains(&name.as_str()) || is_size(name) || is_bound(expression.source(), name)
        };
        if let Some(name) = expression.variables().into_iter().find(|name| !known(name)) {
            return Err(format!("'{name}' is no variable: {}", VARIABLES.join(", ")));
        }
    }
    let named = rule.options.iter().map(|option| option.name.as_str());
    let set = compiled.sets.iter().filter(|it| it.set.target == Target::Config).map(|it| it.set.key.as_str());
    for name in named.chain(set.filter(|key| !key.contains('{'))) {
        // Modules of the manager have options of their own.
        let is_module = name.starts_with("mgr/");
        let is_known = RELEASES.iter().any(|release| {
            let absent = rule.release.get(*release).is_some_and(|standing| standing.state == State::Absent);
            !absent && OptionTable::of(release).is_some_and(|table| table.find(name).is_some())
        });
        if !is_module && !is_known {
            return Err(format!("no release knows the option {name}"));
        }
    }
    Ok(())
}

fn is_size(name: &str) -> bool {
    SIZES.iter().any(|(size, _)| *size == name)
}

/// True for a variable that a macro of the expression binds: `x` of `exists(x, ...)`.
fn is_bound(source: &str, name: &str) -> bool {
    ["exists(", "all(", "filter(", "map(", "exists_one("].iter().any(|opening| {
        source
            .split(opening)
            .skip(1)
            .any(|rest| rest.split(',').next().is_some_and(|word| word.trim() == name))
    })
}

/// All rules together.
pub(super) fn whole(rules: &[CompiledRule]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for compiled in rules {
        if !seen.insert(&compiled.rule.id) {
            return Err(format!("{} is there twice", compiled.rule.id));
        }
    }
    for compiled in rules {
        if let Some(other) = compiled.rule.conflicts.iter().find(|other| !seen.contains(other)) {
            return Err(format!("{} has a conflict with {other}, which is no rule", compiled.rule.id));
        }
    }
    Ok(())
}
