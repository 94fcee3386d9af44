//! A client of an agent's socket.

use crate::status::{HistoryEntry, Status};
use anyhow::{Result, bail};
use loligo_client::client::Client;
use loligo_client::names;
use loligo_client::outcome::{Ended, Outcome};
use loligo_pair::machine::Order;
use std::path::Path;

/// An agent that runs.
#[derive(Debug)]
pub struct AgentClient(Client);

impl AgentClient {
    /// The agent whose socket is at `path`.
    ///
    /// # Errors
    /// If no agent listens there.
    pub fn at(path: &Path) -> Result<AgentClient> {
        if let Err(why) = std::os::unix::net::UnixStream::connect(path) {
            bail!(Ended::refused(format!(
                "no agent answers at {} ({why}): 'loligo pair run' starts it",
                path.display()
            )));
        }
        Ok(AgentClient(Client::over("the agent of the pair", path)?))
    }

    /// The agent that runs in the daemon of this host.
    ///
    /// # Errors
    /// If no daemon listens.
    pub fn of_daemon() -> Result<AgentClient> {
        let path = names::socket_of(names::SOCKET)?;
        if let Err(why) = std::os::unix::net::UnixStream::connect(&path) {
            bail!(Ended::refused(format!(
                "no loligod answers at {} ({why}): start it, or name the pair's file and side by --config and --as",
                path.display()
            )));
        }
        Ok(AgentClient(Client::over("loligod", &path)?))
    }

    /// How it is.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn status(&self) -> Result<Status> {
        self.0.get("/v1/pair")
    }

    /// The history, the oldest entry first.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn history(&self) -> Result<Vec<HistoryEntry>> {
        self.0.get("/v1/pair/history")
    }

    /// Gives an order.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn order(&self, order: Order) -> Result<()> {
        let path = match order {
            Order::Takeover => "/v1/pair/takeover",
            Order::Giveback => "/v1/pair/giveback",
        };
        self.0.post::<serde_json::Value>(path).map(drop)
    }

    /// The same; false: it is refused, since things are not as they were at the last look.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn try_order(&self, order: Order) -> Result<bool> {
        match self.order(order) {
            Err(why) if Outcome::of(&why) == Outcome::Refused => Ok(false),
            done => done.map(|()| true),
        }
    }
}
