//! What a lab of pairs starts where others start an OSD each.

use super::place::{Controller, Node, NodeArray};
use super::{agents, array, daemons, description, osds, pools};
use crate::Progress;
use crate::ceph::Ceph;
use crate::interrupt::Interrupt;
use crate::layout::Layout;
use crate::state::State;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;

/// Starts the arrays of all nodes.
///
/// # Errors
/// If one is not served.
pub(crate) fn arrays(at: &Layout, state: &mut State, program: &Path, stop: &Interrupt) -> Result<()> {
    for controller in Controller::all(state.config.pairs) {
        if state.config.cache.is_some() {
            // A daemon that is killed leaves them.
            state.mounts.extend(controller.node.osds().map(|osd| controller.osd_mount(at, osd)));
        }
        for dir in [controller.run(at), controller.state(at)] {
            fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        }
    }
    let all: Vec<NodeArray> = NodeArray::all(&state.config).collect();
    for array in &all {
        array::start(at, state, program, *array)?;
    }
    all.into_iter().try_for_each(|array| array::wait_served(at, state, array, stop))
}

/// Makes the stores of OSDs, all at once, and describes the pairs; meanwhile the cluster hears of the OSDs.
///
/// # Errors
/// If one of Ceph's programs fails.
pub(crate) fn stores(at: &Layout, ceph: &Ceph, state: &mut State, program: &Path) -> Result<()> {
    Node::all(state.config.pairs).try_for_each(|node| description::write(at, state, program, node))?;
    if state.config.cache.is_none() {
        return make_stores(at, ceph, state);
    }
    osds::serve(at, state, program)?;
    let made = make_stores(at, ceph, state);
    osds::leave(state);
    made
}

fn make_stores(at: &Layout, ceph: &Ceph, state: &State) -> Result<()> {
    std::thread::scope(|scope| {
        let config = &state.config;
        let make = |(id, uuid): &(u32, String)| osds::make_store(at, ceph, config, (*id, uuid));
        let stores: Vec<_> = state.osds.iter().map(|osd| scope.spawn(move || make(osd))).collect();
        let mut told = Ok(String::new());
        for (id, uuid) in &state.osds {
            told = told.and_then(|_| ceph.run(&["osd", "new", uuid, &id.to_string()]));
        }
        let placed = told.and_then(|_| pools::place(ceph, &state.config));
        for store in stores {
            store.join().map_err(|_| anyhow::anyhow!("making a store panicked"))??;
        }
        placed
    })
}

/// Starts the OSDs: by the agents of the controllers, or each on its home.
///
/// # Errors
/// If an agent refuses, or nothing can be started.
pub(crate) fn osds(
    at: &Layout,
    ceph: &Ceph,
    state: &mut State,
    program: &Path,
    stop: &Interrupt,
    progress: &mut dyn Progress,
) -> Result<()> {
    let all: Vec<Controller> = Controller::all(state.config.pairs).collect();
    if !state.config.agents {
        progress.step(&format!("{} OSDs", all.len()));
        for controller in all {
            state.start(at, osds::start(at, ceph, state, controller.osd(), controller)?)?;
        }
        return Ok(());
    }
    if !state.complete {
        progress.step(&format!("setup of {} pairs", state.config.pairs));
        set_up(at, state, program, stop)?;
    }
    if state.config.cache.is_some() {
        start_daemons(at, state, program, stop)?;
    }
    progress.step(&format!("{} agents", all.len()));
    for controller in &all {
        state.start(at, agents::start(at, state, program, *controller)?)?;
    }
    all.iter().try_for_each(|controller| agents::wait_ready(at, state, *controller, stop))
}

/// Makes the images of new volumes, and starts the daemons that serve them once the agents say so, unless they run for the OSDs.
///
/// # Errors
/// If the cluster refuses an image, or a daemon does not answer.
pub(crate) fn volumes(
    at: &Layout,
    ceph: &Ceph,
    state: &mut State,
    program: &Path,
    stop: &Interrupt,
) -> Result<()> {
    if !state.complete {
        daemons::make_images(ceph, state)?;
    }
    if state.config.cache.is_some() { Ok(()) } else { start_daemons(at, state, program, stop) }
}

fn start_daemons(at: &Layout, state: &mut State, program: &Path, stop: &Interrupt) -> Result<()> {
    for controller in Controller::all(state.config.pairs) {
        state.start(at, daemons::start(at, state, program, controller)?)?;
    }
    Controller::all(state.config.pairs).try_for_each(|c| daemons::wait_ready(at, state, c, stop))
}

/// Sets all pairs up, the controllers of each one after the other.
fn set_up(at: &Layout, state: &State, program: &Path, stop: &Interrupt) -> Result<()> {
    let both = |node: Node| {
        node.controllers().into_iter().try_for_each(|c| agents::set_up(at, state, program, c, stop))
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = Node::all(state.config.pairs).map(|node| scope.spawn(move || both(node))).collect();
        all.into_iter().try_for_each(|one| {
            let done = one.join();
            ensure!(done.is_ok(), "the setup of a pair panicked");
            done.unwrap_or(Ok(()))
        })
    })
}
