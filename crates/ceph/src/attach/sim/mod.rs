//! The machine of an attach in a world that breaks: every answer may be lost, the attach given up, the process killed, and
//! strangers act between any two steps.

mod run;
mod scenario;
mod world;

use super::machine::{Machine, Next, Phase};
use super::step::Step;
use crate::lock_record::{LockRecord, Loss};
use run::{Bug, End, Event, Run, Trace};
use scenario::{Order, Scenario};
use std::collections::BTreeMap;
use world::{CACHE, DEEDS, Deed, Handles, Life, World, address, lost_answer};

/// Losses of one answer.
const LOSSES: [Event; 2] = [Event::LoseAnswer, Event::LoseDeed];
/// Ends of an attach from outside.
const ENDS: [Event; 4] = [Event::Cancel, Event::CancelUnheard, Event::Kill, Event::KillAfter];

/// Numbers by chance, from a seed (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A beginning, and what happens at which step.
struct Plan<'a> {
    scenario: &'a Scenario,
    events: BTreeMap<usize, Event>,
    bug: Option<Bug>,
}

/// The result of a plan.
struct Outcome {
    /// The rules that were broken; empty: none.
    wrong: Vec<String>,
    /// Steps until it ended.
    steps: usize,
    trace: Vec<String>,
    is_attached_at_once: bool,
}

impl Plan<'_> {
    fn of(scenario: &Scenario) -> Plan<'_> {
        Plan { scenario, events: BTreeMap::new(), bug: None }
    }

    fn is_disturbed(&self) -> bool {
        self.events.values().any(|e| matches!(e, Event::Stranger(_)))
    }

    /// An attach, another one if that failed, one when the world is quiet, and one with everything ordered.
    fn run(&self, succeeds: bool, traced: bool) -> Outcome {
        let mut world = self.scenario.world.clone();
        let (mut at, mut trace) = (0, Trace { is_wanted: traced, lines: Vec::new() });
        let order = self.scenario.order;
        let mut excused = false;
        let mut attach = |world: &mut World, order: &Order, events: &BTreeMap<usize, Event>| {
            let mut run = Run { world, events, at: &mut at, bug: self.bug, trace: &mut trace };
            let (end, undo_lost) = run.attach(order);
            excused |= undo_lost || matches!(end, End::Gone);
            run.trace.say(|| format!("    {end:?}"));
            (end, excused)
        };
        let (mut end, _) = attach(&mut world, &order, &self.events);
        let is_attached_at_once = matches!(end, End::Attached(_));
        if !is_attached_at_once {
            end = attach(&mut world, &order, &self.events).0;
        }
        let none = BTreeMap::new();
        if !matches!(end, End::Attached(_)) {
            world.quiet();
            let (quiet, excused) = attach(&mut world, &order, &none);
            if let End::Failed(e) = &quiet
                && succeeds
                && !self.is_disturbed()
            {
                // A lock that a dead client left can only be known by a record.
                let is_known = self.scenario.world.record.is_some();
                if is_known || !excused || !e.to_string().contains("--steal") {
                    world.wrong.push(format!("a quiet world refuses what it took before: {e}"));
                }
            }
            end = quiet;
        }
        if !matches!(end, End::Attached(_)) {
            let (end, _) = attach(&mut world, &order.everything(), &none);
            if let End::Failed(e) = end {
                world.wrong.push(format!("everything was ordered, and it fails: {e}"));
            }
        }
        Outcome { wrong: world.wrong, steps: at, trace: trace.lines, is_attached_at_once }
    }

    fn holds(&self, succeeds: bool) {
        if self.run(succeeds, false).wrong.is_empty() {
            return;
        }
        // Once more, to be looked into.
        let Outcome { wrong, trace, .. } = self.run(succeeds, true);
        panic!("{}\n{:?}\n{wrong:?}\n{}", self.scenario.name(), self.events, trace.join("\n"));
    }
}

/// Every scenario, whether it succeeds undisturbed, and its steps.
fn baselines() -> Vec<(Scenario, bool, usize)> {
    let all = scenario::all().into_iter();
    all.map(|scenario| {
        Plan::of(&scenario).holds(false);
        let outcome = Plan::of(&scenario).run(false, false);
        (scenario, outcome.is_attached_at_once, outcome.steps)
    })
    .collect()
}

#[test]
fn any_one_loss_is_mended_by_a_retry() {
    for (scenario, succeeds, steps) in baselines() {
        for at in 0..steps + 8 {
            for loss in LOSSES {
                let events = BTreeMap::from([(at, loss)]);
                Plan { events, ..Plan::of(&scenario) }.holds(succeeds);
            }
        }
    }
}

#[test]
fn any_cancel_or_kill_is_mended_by_a_retry() {
    for (scenario, succeeds, steps) in baselines() {
        for at in 0..steps {
            for end in ENDS {
                let events = BTreeMap::from([(at, end)]);
                Plan { events, ..Plan::of(&scenario) }.holds(succeeds);
            }
        }
    }
}

#[test]
fn a_stranger_between_any_two_steps_loses_nothing() {
    for (scenario, succeeds, steps) in baselines() {
        for at in 0..steps {
            for deed in DEEDS {
                let events = BTreeMap::from([(at, Event::Stranger(deed))]);
                Plan { events, ..Plan::of(&scenario) }.holds(succeeds);
            }
        }
    }
}

/// The scenarios that succeed, without orders that they do not need.
fn least_orders() -> Vec<(Scenario, bool, usize)> {
    let mut kept: Vec<(Scenario, bool, usize)> = Vec::new();
    for (scenario, succeeds, steps) in baselines() {
        let needs_less =
            |k: &Scenario| k.beginning == scenario.beginning && k.order.is_within(scenario.order);
        if succeeds && !kept.iter().any(|(k, ..)| needs_less(k)) {
            kept.push((scenario, succeeds, steps));
        }
    }
    kept
}

#[test]
fn any_two_losses_are_mended_by_a_retry() {
    let long = std::env::var_os("LOLIGO_LONG").is_some_and(|v| v == "1");
    for (scenario, succeeds, steps) in least_orders() {
        // A marker changes little, and the pairs of all beginnings take a minute.
        if !long && scenario.world.marker.is_some() {
            continue;
        }
        for first in 0..steps {
            for kind in LOSSES {
                // The first one ends the attach: the second falls into its undo, or into the next.
                let once = Plan { events: BTreeMap::from([(first, kind)]), ..Plan::of(&scenario) };
                for second in first + 1..once.run(succeeds, false).steps {
                    for other in LOSSES {
                        let events = BTreeMap::from([(first, kind), (second, other)]);
                        Plan { events, ..Plan::of(&scenario) }.holds(succeeds);
                    }
                }
            }
        }
    }
}

#[test]
fn a_stranger_and_a_loss_together_lose_nothing() {
    for (scenario, succeeds, steps) in least_orders() {
        if scenario.world.marker.is_some() {
            continue;
        }
        for (deed, came) in
            [Deed::Visit, Deed::Die, Deed::Steal].into_iter().flat_map(|d| (0..steps).map(move |at| (d, at)))
        {
            for (loss, at) in LOSSES.into_iter().flat_map(|l| (came + 1..steps).map(move |at| (l, at))) {
                let events = BTreeMap::from([(came, Event::Stranger(deed)), (at, loss)]);
                Plan { events, ..Plan::of(&scenario) }.holds(succeeds);
            }
        }
    }
}

/// A life of one image and one cache: attaches, their ends, and strangers, all by chance.
fn live(seed: u64, traced: bool) -> Result<u64, String> {
    let mut chance = Chance(seed);
    let all = scenario::all();
    let scenario = all[chance.below(all.len() as u64) as usize].clone();
    let (mut at, mut trace, mut attached) = (0, Trace { is_wanted: traced, lines: vec![scenario.name()] }, 0);
    let Scenario { mut world, mut order, .. } = scenario;
    for _ in 0..8 {
        order = Order {
            steal: chance.one_in(3),
            force: chance.one_in(4),
            without_cache: chance.one_in(6),
            ..order
        };
        let mut events = BTreeMap::new();
        let rate = [8, 30, 1000][chance.below(3) as usize];
        for step in at..at + 80 {
            if chance.one_in(rate) {
                events.insert(step, any_event(&mut chance));
            }
        }
        trace.say(|| format!("    {order:?}"));
        let mut run = Run { world: &mut world, events: &events, at: &mut at, bug: None, trace: &mut trace };
        let (end, _) = run.attach(&order);
        trace.say(|| format!("    {end:?}"));
        if let End::Attached(me) = end {
            attached += 1;
            hold(&mut world, &mut order, me, &mut chance, &mut trace);
        }
        between(&mut world, &mut chance, &mut trace);
        if !world.wrong.is_empty() {
            return Err(format!("LOLIGO_SEED={seed}: {:?}\n{}", world.wrong, trace.lines.join("\n")));
        }
    }
    world.quiet();
    let none = BTreeMap::new();
    let mut run = Run { world: &mut world, events: &none, at: &mut at, bug: None, trace: &mut trace };
    match run.attach(&order.everything()).0 {
        End::Attached(_) if world.wrong.is_empty() => Ok(attached + 1),
        end => Err(format!("LOLIGO_SEED={seed}: {end:?} {:?}\n{}", world.wrong, trace.lines.join("\n"))),
    }
}

fn any_event(chance: &mut Chance) -> Event {
    match chance.below(6) {
        0 | 1 => LOSSES[chance.below(2) as usize],
        2 => ENDS[chance.below(4) as usize],
        _ => Event::Stranger(DEEDS[chance.below(DEEDS.len() as u64) as usize]),
    }
}

/// A hold on the image, and its end.
fn hold(world: &mut World, order: &mut Order, me: i64, chance: &mut Chance, trace: &mut Trace) {
    let how = chance.below(4);
    trace.say(|| format!("    held until {how}"));
    if !order.cache || !world.may_send(me) {
        world.end_process();
        return;
    }
    order.known = true;
    match how {
        // A stop with everything flushed.
        0 => {
            order.dirty = false;
            world.let_go(me);
            let version = world.version;
            world.record = world.record.take().map(|r| LockRecord { left_at: Some(version), ..r });
            world.watchers.remove(&me);
            world.clients.insert(me, Life::Gone);
        }
        // A stop with dirty data.
        1 => {
            order.dirty = true;
            world.blocklist.insert(address(me));
            let (seq, version) = (world.seq, world.version);
            let rests = LockRecord {
                seq,
                version: Some(version),
                rests_at: Some(version),
                ..world::bare_record(me, seq)
            };
            world.record = Some(rests);
            world.watchers.remove(&me);
            world.clients.insert(me, Life::Gone);
        }
        // The image is lost, and that is noted.
        2 => {
            order.dirty = true;
            world.act(Deed::Steal);
            let lost = Some(Loss::now("another came"));
            world.record = world.record.take().map(|r| LockRecord { lost, ..r });
            world.end_process();
        }
        _ => {
            order.dirty = true;
            world.end_process();
        }
    }
    if how != 2 {
        let ours = order.dirty.then(|| world::marker(CACHE, "a1"));
        world.marker = ours;
    }
}

/// Events between two attaches.
fn between(world: &mut World, chance: &mut Chance, trace: &mut Trace) {
    for _ in 0..2 {
        let what = chance.below(5);
        trace.say(|| format!("    between: {what}"));
        match what {
            0 => world.end_process(),
            1 => world.forget_the_silent(),
            2 => world.quiet(),
            3 => {
                let deed = DEEDS[chance.below(DEEDS.len() as u64) as usize];
                trace.say(|| format!("    {deed:?}"));
                world.act(deed);
            }
            _ => {}
        }
    }
}

/// Seeds of the random lives; `LOLIGO_SEEDS` runs another number of them.
fn seeds() -> u64 {
    std::env::var("LOLIGO_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(6000)
}

#[test]
fn lives_by_chance_break_no_rule() {
    let one = std::env::var("LOLIGO_SEED").ok().and_then(|n| n.parse::<u64>().ok());
    let mut attached = 0;
    for seed in one.map_or(0..seeds(), |s| s..s + 1) {
        attached += live(seed, false).or_else(|_| live(seed, true)).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    assert!(one.is_some() || attached > seeds(), "{attached} attaches in {} lives", seeds());
}

/// The first beginning like this whose order says so.
fn find(beginning: &str, is_it: impl Fn(Order) -> bool) -> Scenario {
    let mut all = scenario::all().into_iter();
    all.find(|s| s.beginning == beginning && is_it(s.order)).expect("there is one")
}

/// The steps that undo an attach that fails in `phase`.
fn undo_of(scenario: &Scenario, phase: Phase) -> Vec<Step> {
    let (mut world, mut handles, mut undo) = (scenario.world.clone(), Handles::default(), Vec::new());
    let mut machine = Machine::new(run::wanted(&world, &scenario.order));
    let mut next = machine.begin();
    while let Next::Do(step) = next {
        if machine.phase() == Phase::Undo {
            undo.push(step.clone());
        }
        let fails = machine.phase() == phase;
        next =
            machine.answered(if fails { Err(lost_answer()) } else { world.carry_out(&mut handles, &step) });
    }
    undo
}

#[test]
fn phases_are_undone_in_reverse_order() {
    let clean = find("Clean Ours None", |o| !o.steal);
    let dirty = find("Killed Ours None", |o| !o.steal);
    let all = [Step::EndWatch, Step::CloseImage, Step::CloseClient];
    for scenario in [&clean, &dirty] {
        assert_eq!(undo_of(scenario, Phase::LookConnect), []);
        assert_eq!(undo_of(scenario, Phase::LookWrite), [Step::CloseLooking]);
        assert_eq!(undo_of(scenario, Phase::Open), all[2..]);
        assert_eq!(undo_of(scenario, Phase::Watch), all[1..]);
        for phase in [Phase::Note, Phase::Blocklist, Phase::Moved, Phase::Visitors] {
            assert_eq!(undo_of(scenario, phase), all, "{phase:?}");
        }
    }
    for phase in [Phase::Break, Phase::NoteFree, Phase::Lock, Phase::Holder, Phase::LateVisitors] {
        assert_eq!(undo_of(&clean, phase), all, "{phase:?}");
        assert_eq!(undo_of(&dirty, phase), [Step::Leave], "{phase:?}");
    }
    for phase in [Phase::Adopt, Phase::Refresh, Phase::NoteHeld] {
        assert_eq!(undo_of(&clean, phase), [Step::Detach], "{phase:?}");
        assert_eq!(undo_of(&dirty, phase), [Step::Retire], "{phase:?}");
    }
}

/// The refusal of a second attach with `second`, after one with the scenario's order whose blocklisting failed. The stranger who
/// has the image writes between.
fn refused_after(scenario: &Scenario, second: Order) -> String {
    let (mut world, mut at, mut trace) = (scenario.world.clone(), 0, Trace::default());
    let count = Plan::of(scenario).run(false, true).trace;
    let fence = count.iter().position(|line| line.contains("Blocklist Blocklist")).expect("it comes so far");
    for (order, loss) in [(scenario.order, Some((fence, Event::LoseDeed))), (second, None)] {
        let events = loss.into_iter().collect();
        let mut run = Run { world: &mut world, events: &events, at: &mut at, bug: None, trace: &mut trace };
        if let (End::Failed(e), None) = (run.attach(&order).0, loss) {
            return e.to_string();
        }
        world.act(Deed::Write);
    }
    panic!("it is not refused: {:?}", world.wrong);
}

#[test]
fn a_force_that_failed_does_not_force_the_next_attach() {
    let forced = find("Dirty Living None", |o| o.steal && o.force);
    let said = refused_after(&forced, Order { force: false, ..forced.order });
    assert!(said.contains("--force"), "{said}");
}

#[test]
fn a_steal_that_failed_does_not_steal_for_the_next_attach() {
    let stolen = find("Clean Living None", |o| o.steal);
    let said = refused_after(&stolen, Order { steal: false, ..stolen.order });
    assert!(said.contains("--steal"), "{said}");
}

/// Checks that a driver with `bug` breaks a rule, in any single event or any of some random lives.
fn is_caught(bug: Bug) {
    for (scenario, succeeds, steps) in baselines() {
        for at in 0..steps {
            let strangers = DEEDS.map(Event::Stranger);
            for event in LOSSES.iter().chain(&ENDS).chain(&strangers) {
                let plan =
                    Plan { events: BTreeMap::from([(at, *event)]), bug: Some(bug), ..Plan::of(&scenario) };
                let outcome = plan.run(succeeds, false);
                if !outcome.wrong.is_empty() {
                    println!("{bug:?}: {} with {event:?} at {at}: {:?}", scenario.name(), outcome.wrong);
                    return;
                }
            }
        }
    }
    panic!("{bug:?} is not caught");
}

#[test]
fn an_undo_that_is_skipped_is_caught() {
    is_caught(Bug::UndoSkipped);
}

#[test]
fn a_lock_given_back_after_an_error_is_caught() {
    is_caught(Bug::LockGivenBack);
}

#[test]
fn a_stamp_that_is_lost_is_caught() {
    is_caught(Bug::StampLost);
}

#[test]
fn a_note_after_its_deed_is_caught() {
    is_caught(Bug::NoteAfterDeed);
}

#[test]
fn a_lost_answer_taken_for_a_lock_let_go_is_caught() {
    is_caught(Bug::LostTakenForLetGo);
}

#[test]
fn an_owner_left_off_the_blocklist_is_caught() {
    is_caught(Bug::Unfenced);
}

#[test]
fn a_watch_that_hears_nobody_is_caught() {
    is_caught(Bug::DeafWatch);
}

#[test]
fn a_version_that_is_not_looked_at_is_caught() {
    is_caught(Bug::VersionIgnored);
}
