//! The keeper of a volume: an agent that has the volume's mode and tunables on an array which its partner reaches.

use anyhow::{Context, Result};
use loligo_client::api::volume::{Keep, Set};
use loligo_client::client::Client;
use loligo_volume::volume_state::Change;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The time that the keeper has.
const PATIENCE: Duration = Duration::from_secs(10);

/// Has the keeper at `socket` keep a change of the volume `name`.
///
/// # Errors
/// If it does not answer, or cannot.
pub(super) fn tell(socket: &Path, name: &str, change: &Change) -> Result<()> {
    let set = match change {
        Change::Mode(mode) => Set::Mode(mode.name().to_owned()),
        Change::Param(key, value) => Set::Param { key: key.clone(), value: value.clone() },
    };
    let keep = Keep { volume: name.to_owned(), set };
    Client::over("the agent of the pair", socket)?
        .within(PATIENCE)
        .tell::<Value>("/v1/pair/keep", json!(keep))
        .map(drop)
        .context("the pair's agent does not keep it on the array, and the partner would not know it")
}
