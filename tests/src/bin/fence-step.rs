//! One step of a fence on a device, by the agent's own code: `fence-step hold|join|take|leave DEVICE MINE PARTNER`, with keys as 0xa.

#![allow(clippy::print_stdout)]

use anyhow::{Context, Result, bail, ensure};
use loligo_pair::fence::{BlockFence, Fence, confirm_held, take};
use loligo_pair::reservation::Key;
use std::path::Path;

fn key(text: &str) -> Result<Key> {
    let digits = text.strip_prefix("0x").with_context(|| format!("'{text}' is no key: write it as 0xa"))?;
    Ok(Key(u64::from_str_radix(digits, 16)?))
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [step, device, mine, partner] = &args[..] else {
        bail!("usage: fence-step hold|join|take|leave DEVICE MINE PARTNER")
    };
    let (mine, partner) = (key(mine)?, key(partner)?);
    let mut fence = BlockFence::open(Path::new(device))?;
    match step.as_str() {
        "join" => fence.register(Key::NONE, mine)?,
        "hold" => {
            fence.register(Key::NONE, mine)?;
            fence.reserve(mine)?;
            confirm_held(&mut fence, mine, partner)?;
        }
        "take" => {
            let done = take(&mut fence, mine, partner)?;
            ensure!(done.is_drained(), "the partner's writes may still land");
        }
        "leave" => fence.register(mine, Key::NONE)?,
        other => bail!("'{other}' is no step: give hold, join, take or leave"),
    }
    let shown = fence.read()?;
    println!("{step} {device}: keys {:x?}, held by {:x?}", shown.keys, shown.held);
    Ok(())
}
