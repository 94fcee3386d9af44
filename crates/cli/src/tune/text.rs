//! Facts, plans and rules for people.

use loligo_log::one_line;
use loligo_tune::apply::{Back, ByHand, Effect, Run, RunKind, Step, Value, place};
use loligo_tune::facts::{Cache, Facts, Host, Osd, Unseen};
use loligo_tune::gather::HostReport;
use loligo_tune::plan::{Change, Finding, Now, Plan, Proposal, Unknown};
use loligo_tune::rules::{Evidence, Kind, Preset, Rule, Target};
use loligo_tune::{counted, is_or_are};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The note of a rule that a release has nothing to add to.
const AS_SAID: &str = "As the rule says.";
/// Objects that are named one by one; more are counted.
const NAMED: usize = 6;

fn bytes(value: i64) -> String {
    format!("{:.1} GiB", value as f64 / f64::from(1 << 30))
}

fn some<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "?".to_owned(), |it| it.to_string())
}

/// A number of things, or that it is not known.
fn some_of<T: TryInto<usize>>(count: Option<T>, noun: &str) -> String {
    let known = count.and_then(|count| count.try_into().ok());
    known.map_or_else(|| format!("? {noun}s"), |count| counted(count, noun))
}

fn list_of(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > NAMED { format!("{shown} and {} more", names.len() - NAMED) } else { shown }
}

/// The report of one host.
pub(super) fn report(report: &HostReport) -> String {
    let mut text = host(&report.host);
    for disk in &report.disks {
        let size = disk.bytes.map_or_else(|| "?".to_owned(), bytes);
        let _ = writeln!(
            text,
            "  disk {:<10} {:<7} {:>12}  scheduler {}, write cache {}, {}",
            disk.name,
            some(disk.kind.as_ref()),
            size,
            some(disk.scheduler.as_ref()),
            some(disk.write_cache.as_ref()),
            one_line(disk.model.as_deref().unwrap_or("no model"))
        );
    }
    for nic in &report.nics {
        let speed = nic.speed_mbit.map_or_else(|| "?".to_owned(), |it| format!("{it} Mbit/s"));
        let _ = writeln!(
            text,
            "  nic  {:<10} {speed}, MTU {}, {}",
            nic.name,
            some(nic.mtu),
            some_of(nic.queues, "queue")
        );
    }
    text + &unseen(&report.unseen)
}

fn host(host: &Host) -> String {
    let memory = host.memory.as_ref().map_or_else(|| "?".to_owned(), |it| bytes(it.total));
    let kernel = host.kernel.as_ref();
    format!(
        "host {}: {}, {}, {}, {memory}, kernel {}, pages of {} bytes, governor {}\n",
        host.name,
        some(host.arch.as_ref()),
        some_of(host.cpus.as_ref().map(Vec::len), "CPU"),
        some_of(host.numa.as_ref().map(Vec::len), "node"),
        some(kernel.map(|it| &it.version)),
        some(kernel.and_then(|it| it.page_size)),
        host.governor.as_deref().unwrap_or("none")
    )
}

/// The whole of the facts, in short.
pub(super) fn facts(facts: &Facts) -> String {
    let cluster = &facts.cluster;
    let mut text = String::new();
    if cluster.reached {
        let mixed = if cluster.mixed == Some(true) { ", of several versions" } else { "" };
        let _ = writeln!(
            text,
            "cluster {}: {}, release {}{mixed}, {}, {}, {} of configuration",
            some(cluster.fsid.as_ref()),
            some(cluster.health.as_ref()),
            some(cluster.release),
            counted(facts.osds.len(), "OSD"),
            counted(facts.pools.len(), "pool"),
            counted(cluster.config.len(), "entry")
        );
    }
    for osd in &facts.osds {
        let set = osd.options.values().filter(|setting| setting.source != "default").count();
        let _ = writeln!(
            text,
            "osd.{:<4} {}, {}, {}, class {}, {}, scheduler {}, backfills {}, tcmalloc {}, {}; {} set",
            osd.id,
            osd.host,
            if osd.up { "up" } else { "down" },
            some(osd.version.as_ref()),
            some(osd.class.as_ref()),
            some_of(osd.pgs, "PG"),
            some(osd.scheduler.as_ref()),
            some(osd.backfills_max),
            osd.tcmalloc.map_or("?", |it| if it { "yes" } else { "no" }),
            of_osd(osd),
            counted(set, "option")
        );
    }
    for it in &facts.hosts {
        text.push_str(&host(it));
    }
    for it in &facts.caches {
        text.push_str(&cache(it));
    }
    text + &unseen(&facts.unseen)
}

fn cache(cache: &Cache) -> String {
    format!(
        "cache {} of {}: {}, mode {}, {}, {} % dirty, {} in front of {}{}\n",
        cache.name,
        cache.host,
        cache.kind,
        some(cache.mode.as_ref()),
        cache.bytes.map_or_else(|| "?".to_owned(), bytes),
        some(cache.dirty_percent),
        some(cache.device.as_ref()),
        some(cache.core.as_ref()),
        if cache.on_osd == Some(true) { ", under an OSD" } else { "" }
    )
}

/// The cache of an OSD, and what it measured.
fn of_osd(osd: &Osd) -> String {
    let cache = match &osd.cache {
        None => "cache ?".to_owned(),
        Some(cache) if cache.kind.is_empty() => "no cache".to_owned(),
        Some(cache) => format!("cache {}", cache.kind),
    };
    let measured = osd.measured.as_ref().map_or_else(String::new, |it| {
        format!(", measured {} IOPS and {} MiB/s", it.iops, it.bandwidth >> 20)
    });
    cache + &measured
}

/// Rules that were named although all is as they say.
pub(super) fn so_already(rules: &BTreeMap<String, Vec<String>>) -> String {
    let mut text = String::new();
    for (rule, places) in rules {
        let _ = writeln!(text, "{rule} is so already: {}", list_of(places));
    }
    text
}

fn unseen(all: &[Unseen]) -> String {
    let lines = all.iter().map(|it| format!("not seen: {}: {}\n", it.what, one_line(&it.why)));
    lines.collect()
}

/// A plan.
pub(super) fn plan(plan: &Plan, facts: &Facts, verbose: bool) -> String {
    let mut text = String::new();
    let mut risk = None;
    for it in &plan.proposals {
        if risk != Some(it.risk) {
            risk = Some(it.risk);
            let _ = writeln!(text, "== {}", it.risk.words());
        }
        text.push_str(&proposal(it, verbose));
    }
    for (title, kind) in [
        ("refused: does harm", Kind::Refuse),
        ("to be looked at", Kind::Check),
        ("for a person", Kind::Advice),
    ] {
        let found: Vec<&Finding> = plan.findings.iter().filter(|it| it.kind == kind).collect();
        if !found.is_empty() {
            let _ = writeln!(text, "== {title}");
        }
        for it in found {
            text.push_str(&finding(it, verbose));
        }
    }
    if verbose {
        for it in &plan.unknown {
            text.push_str(&unknown(it));
        }
        text.push_str(&unseen(&facts.unseen));
    }
    let others: usize = plan.others.values().map(Vec::len).sum();
    let _ = writeln!(
        text,
        "{}, {}, {} cannot be told{}, {others} {}",
        counted(plan.proposals.len(), "proposal"),
        counted(plan.findings.len(), "finding"),
        counted(plan.unknown.len(), "rule"),
        if verbose || plan.unknown.is_empty() { "" } else { " (-v names the missing facts)" },
        if others == 1 { "proposes nothing" } else { "propose nothing" }
    );
    text
}

fn proposal(it: &Proposal, verbose: bool) -> String {
    let mut text = format!("{} {} ({})\n", it.rule, it.title, list_of(&it.subjects));
    text.extend(it.changes.iter().map(change));
    let lines = [("why", &it.reason), ("effect", &it.expect), ("price", &it.cost), ("note", &it.note)];
    text.extend(lines.map(|(word, what)| line(word, what)));
    if verbose {
        text.push_str(&line("see it", &it.verify));
        text.push_str(&grounds(&it.evidence));
    }
    text
}

/// A line of an entry, if there is something to say.
fn line(word: &str, what: &str) -> String {
    match what {
        "" | AS_SAID => String::new(),
        what => format!("    {word}: {}\n", one_line(what.trim())),
    }
}

fn grounds(all: &[Evidence]) -> String {
    all.iter().map(|ground| line("evidence", &format!("{} ({})", ground.text, ground.source))).collect()
}

fn change(change: &Change) -> String {
    let what = format!("{} {}", change.who, change.key);
    let now = now(&change.now);
    match &change.value {
        Some(value) => format!("  {}: {now} -> {}\n", what.trim(), shown(value)),
        None if change.target == Target::Daemon => format!("  {} starts anew\n", change.who),
        None => format!("  {}: {now} -> taken away\n", what.trim()),
    }
}

/// A value in one line.
fn shown(value: &str) -> String {
    Value::plain(Some(value.to_owned())).words()
}

fn now(now: &Now) -> String {
    let runs: Vec<String> = now.runs.iter().map(|it| format!("{} ({})", it.value, it.source)).collect();
    match (&now.set, runs.is_empty()) {
        (Some(set), true) => shown(set),
        (Some(set), false) => format!("{set}, runs with {}", runs.join(", ")),
        (None, false) => runs.join(", "),
        (None, true) => "not known".to_owned(),
    }
}

fn finding(it: &Finding, verbose: bool) -> String {
    let mut text = format!("{} {} ({})\n", it.rule, it.title, list_of(&it.subjects));
    let lines = [("why", &it.reason), ("price", &it.cost), ("note", &it.note)];
    text.extend(lines.map(|(word, what)| line(word, what)));
    if verbose {
        text.push_str(&grounds(&it.evidence));
    }
    text
}

fn unknown(it: &Unknown) -> String {
    format!("unknown: {} {} ({}): {}\n", it.rule, it.title, list_of(&it.subjects), one_line(&it.why))
}

/// Steps that would be made.
pub(super) fn dry(steps: &[Step], by_hand: &[ByHand]) -> String {
    let mut text: String = steps.iter().map(step).collect();
    let osds: BTreeSet<i64> = steps.iter().flat_map(|step| step.restarts.iter().copied()).collect();
    if !osds.is_empty() {
        let names: Vec<String> = osds.iter().map(|osd| format!("osd.{osd}")).collect();
        let _ = writeln!(text, "restarted one by one: {}", list_of(&names));
    }
    text.push_str(&by_hands(by_hand));
    let end = match (steps.is_empty(), by_hand.is_empty()) {
        (false, _) => "nothing was changed: --yes does it",
        (true, true) => "nothing is to be done",
        (true, false) => "the rest is left to a person",
    };
    text + &format!("{}; {end}\n", counted(steps.len(), "step"))
}

fn step(step: &Step) -> String {
    format!("{:>3} {:<8} {}\n", step.number, step.rule, step.words())
}

fn by_hands(all: &[ByHand]) -> String {
    let line = |it: &ByHand| {
        let value = Value::plain(it.change.value.clone()).words();
        format!("by hand: {} {} -> {value}: {}\n", it.rule, place(&it.change), it.why)
    };
    all.iter().map(line).collect()
}

/// A run that was made.
pub(super) fn applied(run: &Run, by_hand: &[ByHand]) -> String {
    format!(
        "{}{} {} made. 'loligo tune rollback {}' takes {} back\n",
        by_hands(by_hand),
        counted(run.done.len(), "step"),
        is_or_are(run.done.len()),
        run.head.run,
        if run.done.len() == 1 { "it" } else { "them" }
    )
}

/// Values that were put back.
fn as_before(back: &Back) -> String {
    match back.restored.len() {
        1 => "1 value is as it was".to_owned(),
        count => format!("{count} values are as they were"),
    }
}

/// A run that was taken back.
pub(super) fn back(run: &str, back: &Back) -> String {
    let mut text = String::new();
    for (place, why) in &back.left {
        let _ = writeln!(text, "left: {place}: {}", one_line(why));
    }
    for (place, why) in &back.failed {
        let _ = writeln!(text, "not taken back: {place}: {}", one_line(why));
    }
    for (place, why) in &back.late {
        let _ = writeln!(text, "does not act yet: {place}: {}", one_line(why));
    }
    let _ = writeln!(text, "the run {run} is taken back: {}", as_before(back));
    if !back.left.is_empty() {
        let left = back.left.len();
        let _ = writeln!(
            text,
            "left: {}. 'loligo tune rollback {run} --force' puts back what was left",
            counted(left, "value")
        );
    }
    text
}

/// A run of which places could not be taken back.
pub(super) fn not_back(run: &str, back: &Back) -> String {
    let all: Vec<String> =
        back.failed.iter().map(|(place, why)| format!("{place}: {}", one_line(why))).collect();
    format!(
        "the run {run}: {}, and these could not be taken back: {}. Mend that and call \
         'loligo tune rollback {run}' again. Where a place is gone for good, 'loligo tune rollback {run} --force' closes the run, and \
         also puts back values that somebody changed since",
        as_before(back),
        all.join("; ")
    )
}

/// The command that made a run.
pub(super) fn kind(kind: Option<RunKind>) -> &'static str {
    kind.map_or("?", RunKind::word)
}

/// A run by its journal.
pub(super) fn run(run: &Run) -> String {
    let (head, state) = (&run.head, run.state());
    let mut text = format!("{} on {}: {}, {state}\n", head.run, head.host, kind(head.kind));
    for it in &run.steps {
        text.push_str(&step(it));
        let state = match (run.undone.get(&it.number), run.done.get(&it.number)) {
            (Some(None), _) => "taken back".to_owned(),
            (Some(Some(why)), _) => format!("left: {}", one_line(why)),
            (None, Some(Effect::Acts(sight))) => format!("acts: {}", one_line(sight)),
            (None, Some(Effect::NotVisible(why))) => format!("set: {}", one_line(why)),
            (None, None) if run.begun.contains(&it.number) => "begun".to_owned(),
            (None, None) => "not begun".to_owned(),
        };
        let _ = writeln!(text, "      {state}");
    }
    if let Some((_, _, why)) = run.ended.as_ref().filter(|(_, _, why)| !why.is_empty()) {
        let _ = writeln!(text, "stopped: {}", one_line(why));
    }
    text
}

/// The settings of an article.
pub(super) fn preset(preset: &Preset) -> String {
    let mut text = format!("{}: {}\n  {}\n", preset.name, preset.title, one_line(preset.about.trim()));
    for set in &preset.sets {
        let _ = writeln!(text, "{:<7} {} {} = {}", set.rule, set.who, set.key, set.value);
        let _ = writeln!(text, "        {}", one_line(&set.label));
    }
    text
}

/// All rules, a line each.
pub(super) fn list(all: &[&Rule]) -> String {
    let line = |rule: &&Rule| format!("{:<8} {:<9} {}\n", rule.id, word(rule.kind), rule.title);
    all.iter().map(line).collect()
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Set => "set",
        Kind::Remove => "remove",
        Kind::Refuse => "refuse",
        Kind::Check => "check",
        Kind::Advice => "advice",
    }
}

/// One rule.
pub(super) fn rule(rule: &Rule) -> String {
    let mut text = format!("{} {}\n", rule.id, rule.title);
    let mut line = |word: &str, what: &str| {
        let _ = writeln!(text, "  {word:<9} {}", one_line(what.trim()));
    };
    line("kind", &format!("{}; {}", word(rule.kind), rule.risk.words()));
    line("releases", &format!("{} to {}", rule.releases.from, rule.releases.to));
    line("when", &rule.when.split_whitespace().collect::<Vec<_>>().join(" "));
    for set in &rule.sets {
        let value = set
            .value
            .as_deref()
            .map_or("(taken away)".to_owned(), |it| it.split_whitespace().collect::<Vec<_>>().join(" "));
        line("sets", &format!("{} {} = {value}", set.who, set.key));
    }
    line("why", &rule.reason);
    line("effect", &rule.expect);
    line("price", &rule.cost);
    line("see it", &rule.verify);
    for ground in &rule.evidence {
        line("evidence", &format!("{} ({})", ground.text, ground.source));
    }
    for (release, standing) in &rule.release {
        let state = serde_json::to_value(standing.state).ok();
        let state = state.as_ref().and_then(|it| it.as_str()).unwrap_or_default().to_owned();
        line(&format!("on {release}"), &format!("{state}. {}", standing.note));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_thing_is_no_plural() {
        assert_eq!(dry(&[], &[]), "0 steps; nothing is to be done\n");
        let back = |count: usize| Back {
            restored: (0..count).map(|it| it.to_string()).collect(),
            left: vec![("a".to_owned(), "why".to_owned())],
            ..Back::default()
        };
        assert!(super::back("R", &back(1)).contains("is taken back: 1 value is as it was\nleft: 1 value."));
        assert!(super::back("R", &back(2)).contains("is taken back: 2 values are as they were\n"));
        let all = Facts {
            cluster: loligo_tune::facts::Cluster { reached: true, ..Default::default() },
            ..Facts::default()
        };
        assert!(facts(&all).contains("0 OSDs, 0 pools, 0 entries of configuration"), "{}", facts(&all));
        let one = Facts { osds: vec![Osd { pgs: Some(1), ..Osd::default() }], ..all };
        let said = facts(&one);
        assert!(
            said.contains(", 1 OSD, 0 pools") && said.contains(", 1 PG, ") && said.contains("0 options set"),
            "{said}"
        );
    }
}
