//! Runs the claims about the fence on a real target: `fence-claims lio|nvmet A B`, where A and B are two paths to one LUN whose
//! writes are slow by place (`tests/vm/fence.sh`).

#![allow(clippy::print_stdout)]

use anyhow::{Result, bail};
use loligo_tests::fence_claims::{IfPartnerHolds, Target, run};
use std::time::Duration;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, a, b] = &args[..] else { bail!("usage: fence-claims lio|nvmet A B") };
    let if_partner_holds = match kind.as_str() {
        "lio" => IfPartnerHolds::Misses,
        "nvmet" => IfPartnerHolds::Nothing,
        other => bail!("'{other}' is no target: give lio or nvmet"),
    };
    run(&Target {
        a: a.into(),
        b: b.into(),
        if_partner_holds,
        set_delay: &|_| {},
        short: Duration::from_millis(300),
        long: Duration::from_millis(1500),
    })
}
