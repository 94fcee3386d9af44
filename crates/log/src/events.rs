//! Events of `tracing` as lines of the log.

use crate::style::Level;
use std::fmt::Write as _;
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// The levels that are logged where `LOLIGO_LOG` does not say: our own events from "info" on, those of others from "warn" on.
const DEFAULT: &str = "warn,loligo=info";

/// From now on events are lines of the log, as `LOLIGO_LOG` says. To be called once.
pub fn install() {
    let filter = EnvFilter::try_from_env("LOLIGO_LOG").unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    // A second call changes nothing.
    let _ = tracing_subscriber::registry().with(filter).with(Lines).try_init();
}

/// Writes each event as one line. Nobody waits for it: events come from threads that carry requests out.
struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let (level, words) = rendered(event.metadata(), |words| event.record(words));
        crate::put(level, None, &crate::one_line(&words), Duration::ZERO);
    }
}

fn rendered(meta: &Metadata<'_>, record: impl FnOnce(&mut Words)) -> (Level, String) {
    let (level, word) = match *meta.level() {
        tracing::Level::ERROR => (Level::Error, "error: "),
        tracing::Level::WARN => (Level::Warning, "warning: "),
        tracing::Level::INFO => (Level::Info, ""),
        tracing::Level::DEBUG | tracing::Level::TRACE => (Level::Debug, "debug: "),
    };
    let mut words = Words::default();
    record(&mut words);
    (level, format!("{word}{}: {}{}", meta.target(), words.message, words.fields))
}

#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
