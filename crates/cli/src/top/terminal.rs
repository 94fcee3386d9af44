//! The terminal: taken over, and given back as it was, whatever ends the program.

use super::screen::Screen;
use super::sort::Order;
use anyhow::{Context, Result};
use loligo_client::watch::{Look, Row, look, rows};
use parking_lot::{Condvar, Mutex};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The time that a key may go unnoticed where a look has come meanwhile.
const GLANCE: Duration = Duration::from_millis(50);

/// Shows the volumes until somebody leaves.
pub(super) fn run(interval: Duration, order: Order) -> Result<()> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, ended.clone()).context("catching signals")?;
    }
    // Its hook gives the terminal back before a panic is printed.
    let mut terminal = ratatui::try_init().context("the terminal cannot be taken over: try --batch")?;
    let shown = show(&mut terminal, Screen::new(interval, order), &ended);
    ratatui::restore();
    shown
}

fn show(terminal: &mut ratatui::DefaultTerminal, mut screen: Screen, ended: &AtomicBool) -> Result<()> {
    let pace = Arc::new(Pace::new(screen.interval));
    let looks = watch(pace.clone())?;
    while !ended.load(Ordering::Relaxed) {
        while let Ok(found) = looks.try_recv() {
            match found {
                Ok(rows) => {
                    screen.problem = None;
                    screen.show(rows);
                }
                Err(why) => screen.problem = Some(format!("{why:#}")),
            }
        }
        terminal.draw(|frame| screen.draw(frame)).context("the terminal is gone")?;
        // A signal ends the wait by itself.
        if event::poll(GLANCE).unwrap_or(false)
            && let Event::Key(key) = event::read().context("the terminal is gone")?
            && key.kind == KeyEventKind::Press
            && screen.key(key)
        {
            break;
        }
        pace.set(screen.interval);
    }
    Ok(())
}

/// The time that the watcher waits, changed while it does.
struct Pace {
    millis: AtomicU64,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Pace {
    fn new(interval: Duration) -> Pace {
        Pace {
            millis: AtomicU64::new(interval.as_millis() as u64),
            lock: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn set(&self, interval: Duration) {
        let millis = interval.as_millis() as u64;
        if self.millis.swap(millis, Ordering::Relaxed) != millis {
            self.changed.notify_all();
        }
    }

    /// Waits until `before` is an interval ago.
    fn wait(&self, before: &Look) {
        let left =
            || Duration::from_millis(self.millis.load(Ordering::Relaxed)).saturating_sub(before.at.elapsed());
        let mut guard = self.lock.lock();
        while !left().is_zero() {
            self.changed.wait_for(&mut guard, left());
        }
    }
}

/// Looks again and again, beside the keys: a volume may take its time to answer.
fn watch(pace: Arc<Pace>) -> Result<Receiver<Result<Vec<Row>>>> {
    let (send, looks) = channel();
    let again = move || {
        let mut before: Option<Look> = None;
        loop {
            let found = look();
            let said = match &found {
                Ok(now) => Ok(rows(before.as_ref(), now)),
                Err(why) => Err(anyhow::anyhow!("{why:#}")),
            };
            if send.send(said).is_err() {
                return;
            }
            match found {
                Ok(now) => {
                    pace.wait(&now);
                    before = Some(now);
                }
                Err(_) => std::thread::sleep(Duration::from_secs(1)),
            }
        }
    };
    std::thread::Builder::new().name("watch".into()).spawn(again).context("starting a thread")?;
    Ok(looks)
}
