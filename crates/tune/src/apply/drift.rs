//! Drift: values of applied runs that are no more what they were made, or that stopped acting.

use super::effect;
use super::journal::Run;
use super::places::Hands;
use super::step::Step;
use crate::facts::Facts;
use crate::rules::Target;
use loligo_client::tune::Drift;

/// Steps of runs, the oldest first, that still count: made, not taken back, and not made anew by a later run.
pub fn standing(runs: &[Run]) -> Vec<(&Run, &Step)> {
    let mut all: Vec<(&Run, &Step)> = Vec::new();
    for run in runs.iter().filter(|run| run.rolled_back.is_none()) {
        let counts = |step: &&Step| {
            step.change.target != Target::Daemon
                && run.done.contains_key(&step.number)
                && !run.undone.contains_key(&step.number)
        };
        for step in run.steps.iter().filter(counts) {
            all.retain(|(_, earlier)| !earlier.change.is_at(&step.change));
            all.push((run, step));
        }
    }
    all
}

/// Looks at each step once.
pub fn drifts(hands: Hands<'_>, facts: &Facts, steps: &[(&Run, &Step)]) -> Vec<Drift> {
    let look = |(run, step): &(&Run, &Step)| {
        let why = effect::look(hands, facts, step).err()?;
        Some(Drift { run: run.head.run.clone(), rule: step.rule.clone(), place: step.place(), why })
    };
    steps.iter().filter_map(look).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{Effect, Entry, Head, How, MAGIC, VERSION, Value};
    use crate::plan::{Change, Now, Purpose};
    use crate::rules::{Goal, Observe, Workload};

    fn run(name: &str, key: &str, more: &[Entry]) -> Run {
        let purpose = Purpose { workload: Workload::Mixed, goal: Goal::Iops };
        let (magic, run) = (MAGIC.to_owned(), name.to_owned());
        let change = Change {
            target: Target::Config,
            who: "osd".into(),
            key: key.into(),
            now: Now::default(),
            value: Some("1".into()),
            observe: Observe::Option,
        };
        let step =
            Step { number: 1, rule: "X".into(), change, before: Value::default(), restarts: Vec::new() };
        let mut entries = vec![
            Entry::Head(Head {
                magic,
                version: VERSION,
                run,
                fsid: "f".into(),
                host: "h".into(),
                at: 1,
                purpose,
                kind: None,
            }),
            Entry::Step(Box::new(step)),
            Entry::Doing(1),
            Entry::Done(1, Effect::Acts("seen".into())),
            Entry::Ended { at: 2, how: How::Applied, why: String::new() },
        ];
        entries.extend_from_slice(more);
        Run::of(&entries).expect("a run")
    }

    #[test]
    fn the_last_run_that_stands_counts_for_a_place() {
        let runs = [
            run("1", "a", &[]),
            run("2", "b", &[Entry::Undoing(1), Entry::Undone(1, None), Entry::RolledBack { at: 3 }]),
            run("3", "a", &[]),
            run("4", "c", &[]),
        ];
        let names: Vec<_> =
            standing(&runs).iter().map(|(run, step)| (run.head.run.as_str(), step.place())).collect();
        assert_eq!(names, [("3", "a of osd".to_owned()), ("4", "c of osd".to_owned())]);
    }
}
