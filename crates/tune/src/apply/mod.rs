//! Plans are applied and taken back: what was there is recorded first, each effect is observed, and a lock in the cluster keeps two
//! tuners apart.

mod affinity;
mod again;
mod allowed;
mod by_copy;
mod disk;
mod drift;
mod drop_in;
mod effect;
mod gate;
mod hosts;
mod journal;
mod lock;
mod masks;
mod named;
mod on_host;
mod overridden;
mod places;
mod replaced;
mod restart;
mod rollback;
mod run;
mod scheduler;
pub mod shared;
mod sides;
mod step;
mod value;
mod witness;

pub use again::{Again, bind_again};
pub use drift::{drifts, standing};
pub use effect::Effect;
pub use gate::Health;
pub use hosts::Hosts;
pub use journal::{BadJournal, Entry, Head, How, Journal, MAGIC, Run, VERSION, now, read};
pub use lock::Lock;
pub use named::named;
pub use on_host::{Found, Order, carry_out};
pub use overridden::overridden;
pub use places::{Hands, wanted};
pub use restart::{Restarts, Way};
pub use rollback::{Back, Rollback};
pub use run::{Apply, Ended, Watch, places, steps};
pub use sides::{Sides, Uncompared};
pub use step::{ByHand, Choice, Chosen, NoChoice, SEARCH, Step, choose, of_preset, place};
pub use value::Value;
