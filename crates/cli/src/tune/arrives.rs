//! Options of clients reach the load: nothing else shows whether a client has them.

use super::from::{From, connect};
use loligo_bench::compare::{Arms, Ladder};
use loligo_tune::apply::Step;
use loligo_tune::plan::is_same;
use loligo_tune::rules::Target;

/// A ladder whose options of clients are looked at, each once, by a client that connects as the load does.
pub(super) struct Arriving<'a, 'b> {
    ladder: Ladder<'a, 'b>,
    steps: &'a [Step],
    from: &'a From,
    pool: &'a str,
    image: String,
    /// Steps that were looked at.
    seen: usize,
}

impl<'a, 'b> Arriving<'a, 'b> {
    /// The arms of `ladder`, whose load is on `image` of `pool`.
    pub(super) fn new(
        ladder: Ladder<'a, 'b>,
        steps: &'a [Step],
        from: &'a From,
        [pool, image]: [&'a str; 2],
    ) -> Arriving<'a, 'b> {
        Arriving { ladder, steps, from, pool, image: image.to_owned(), seen: 0 }
    }

    fn arrives(&self, steps: &[Step]) -> Result<(), String> {
        let of_clients = |step: &&Step| {
            let who = step.change.who.as_str();
            step.change.target == Target::Config && (who == "global" || who.starts_with("client"))
        };
        let meant: Vec<&Step> = steps.iter().filter(of_clients).collect();
        if meant.is_empty() {
            return Ok(());
        }
        // Values of the monitors come as a client connects.
        let client = connect(self.from).map_err(|why| format!("{why:#}"))?;
        for step in meant {
            let Some(wants) = &step.change.value else { continue };
            let key = step.change.key.as_str();
            let has = client.in_force(self.pool, &self.image, key).map_err(|why| why.to_string())?;
            if !is_same(&has, wants) {
                let (who, name, pool, image) = (&step.change.who, &self.from.name, self.pool, &self.image);
                return Err(format!(
                    "{key} of {who} does not reach the load: {name} has {has}, and not {wants}. Another section, its file, the pool or \
                     the image goes before it: 'ceph config get {name} {key}' and 'rbd config image ls {pool}/{image}' say more"
                ));
            }
        }
        Ok(())
    }
}

impl Arms for Arriving<'_, '_> {
    fn put(&mut self, arm: usize) -> Result<(), String> {
        self.ladder.put(arm)?;
        let count = self.ladder.count(arm);
        if count > self.seen {
            self.arrives(&self.steps[self.seen..count])?;
            self.seen = count;
        }
        Ok(())
    }
}
