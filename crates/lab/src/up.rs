//! Bringing a lab up.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::Progress;
use crate::ceph::{self, Ceph, uuid};
use crate::config::{LabConfig, OsdPlan};
use crate::interrupt::{Interrupt, Interrupted};
use crate::layout::Layout;
use crate::lock::Lock;
use crate::pairs::begin;
use crate::process::{POLL, Process, last_lines};
use crate::state::State;
use crate::{conf, down, fail, mons, namespaces, osd, pairs};

/// The time that OSDs may take to come up, and placement groups to become clean.
const LIMIT: Duration = Duration::from_secs(180);
/// The client that tests and volumes use.
pub const CLIENT: &str = "loligo";

/// Warnings that say nothing about a lab: one copy was asked for, and the manager lacks modules that no lab needs.
const MUTED: [&str; 6] = [
    "POOL_NO_REDUNDANCY",
    "MGR_MODULE_DEPENDENCY",
    "MGR_MODULE_ERROR",
    "POOL_PG_NUM_NOT_POWER_OF_TWO",
    "TOO_FEW_OSDS",
    "OSD_SLOW_PING_TIME_BACK",
];

/// A lab to be brought up.
#[derive(Debug, Clone)]
pub struct UpOptions {
    /// The lab's folder.
    pub dir: PathBuf,
    /// Its configuration.
    pub config: LabConfig,
    /// This program, which serves the disk models.
    pub program: PathBuf,
    /// Overwrite devices that hold data.
    pub force: bool,
}

/// Makes a lab and starts it, or starts one that was taken down with its data kept. Returns when every placement group is
/// active and clean and the cluster says HEALTH_OK.
///
/// # Errors
/// If something is missing, in use or fails; what had been started is stopped then, and after an interrupt removed.
pub fn up(options: &UpOptions, stop: &Interrupt, progress: &mut dyn Progress) -> Result<State> {
    ceph::installed(&ceph::PROGRAMS)?;
    let at = Layout::at(&options.dir)?;
    let plans = options.config.plan()?;
    let kept = State::read(&at)?;
    let config = kept.as_ref().map_or(&options.config, |state| &state.config);
    let networks = config.in_namespaces().then(namespaces::take_networks).transpose()?;
    let (mut state, plans) = match kept {
        Some(kept) => (again(&at, kept, &options.config)?, None),
        None => (fresh(&at, options, &plans, stop)?, Some(plans)),
    };
    let _lock = Lock::take(&at.lock(), Duration::ZERO)?;
    let made = plans.is_some();
    let plans = plans.map_or_else(|| state.config.plan(), Ok)?;
    let done = bring_up(&at, options, &mut state, &plans, networks, stop, progress);
    let Err(error) = done else { return Ok(state) };
    progress.step("stopping what was started");
    down::stop(&mut state);
    if made && error.chain().any(|cause| cause.is::<Interrupted>()) {
        down::remove(&at)?;
        return Err(error);
    }
    state.write(&at)?;
    let dir = at.dir().display();
    Err(error.context(format!(
        "the lab did not come up (logs: {dir}/log; 'loligo lab down --dir {dir}' removes it)"
    )))
}

/// A lab that exists: it must be whole, stopped, and meant.
fn again(at: &Layout, mut kept: State, asked: &LabConfig) -> Result<State> {
    let dir = at.dir().display();
    let running = kept.running();
    if let Some(p) = running.first() {
        if kept.complete && running.len() == kept.processes.len() {
            bail!(
                "a lab runs in {dir} already ({} is process {}): 'loligo lab status --dir {dir}' shows it",
                p.name,
                p.pid
            );
        }
        let keep = if kept.complete { " --keep" } else { "" };
        bail!(
            "a lab runs in {dir} already, but only in part: run 'loligo lab down{keep} --dir {dir}', \
            then bring it up again"
        );
    }
    ensure!(kept.complete, "the lab in {dir} was never finished: 'loligo lab down --dir {dir}' removes it");
    let have = kept.config.settled();
    if *asked != LabConfig::default() && asked.settled() != have {
        bail!(
            "the lab in {dir} was made with other settings ({}): name another folder with --dir, or remove it with \
             'loligo lab down --dir {dir}'",
            differing(&asked.settled(), &have)?
        );
    }
    kept.config = have;
    Ok(kept)
}

/// The settings in which two labs differ, as their file calls them.
fn differing(asked: &LabConfig, have: &LabConfig) -> Result<String> {
    let [asked, have] = [asked, have].map(serde_json::to_value);
    let (asked, have) = (asked?, have?);
    let keys = asked.as_object().into_iter().flatten();
    let other = keys.filter(|(key, value)| have.get(key) != Some(value));
    let words = other.map(|(key, value)| match have.get(key) {
        Some(was) => format!("{key} is {was}, not {value}"),
        None => format!("{key} was not given"),
    });
    Ok(words.collect::<Vec<_>>().join("; "))
}

/// Checks what the new lab wants of the machine and makes its folder.
fn fresh(at: &Layout, options: &UpOptions, plans: &[OsdPlan], stop: &Interrupt) -> Result<State> {
    let dir = at.dir();
    let occupied = fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
    ensure!(!occupied, "{} is not empty and holds no lab: name another folder with --dir", dir.display());
    osd::check_devices(plans, options.force)?;
    let address = match options.config.in_namespaces() {
        true => format!("{}.1", namespaces::free_network(stop)?),
        false => "127.0.0.1".to_owned(),
    };
    for sub in [at.run(), at.log(), at.dir().join("crash")] {
        fs::create_dir_all(&sub).with_context(|| format!("making {}", sub.display()))?;
    }
    let state = State::new(options.config.settled(), uuid()?, address);
    state.write(at)?;
    Ok(state)
}

fn bring_up(
    at: &Layout,
    options: &UpOptions,
    state: &mut State,
    plans: &[OsdPlan],
    networks: Option<Lock>,
    stop: &Interrupt,
    progress: &mut dyn Progress,
) -> Result<()> {
    let ceph = Ceph::of(at, stop);
    let new = !state.complete;
    state.processes.clear();
    fail::forget(at)?;
    if state.config.in_namespaces() {
        progress.step("network namespaces");
        let ids: Vec<u32> = plans.iter().map(|p| p.id).collect();
        namespaces::make(at, state, &ids, stop)?;
    }
    drop(networks);
    let pairs = state.config.pairs;
    if pairs > 0 {
        progress.step(&format!("{pairs} arrays"));
        begin::arrays(at, state, &options.program, stop)?;
    }
    progress.step(if state.config.mon_count() > 1 { "monitors" } else { "monitor" });
    if new {
        for plan in plans {
            state.osds.push((plan.id, uuid()?));
        }
        state.mons = mons::plan(&state.config, &state.address)?;
        write(&at.conf(), &conf::text(at, state, state.config.osd_bytes()?))?;
        keys(at, &ceph, plans)?;
        mons::make_stores(at, &ceph, state)?;
    }
    for mon in state.mons.clone() {
        state.start(at, mons::start(at, &ceph, state, &mon)?)?;
    }
    let answered = ceph.run(&["quorum_status"]);
    explain(at, state, answered.map(drop))?;
    if new {
        // It would make a pool of its own once OSDs are there.
        ceph.run(&["config", "set", "mgr", "mgr/devicehealth/enable_monitoring", "false", "--force"])?;
    }
    progress.step("manager");
    start_manager(at, &ceph, state)?;
    if pairs == 0 {
        start_osds(at, options, &ceph, state, plans, stop, progress)?;
    } else {
        if new {
            progress.step(&format!("stores of {} OSDs", plans.len()));
            begin::stores(at, &ceph, state, &options.program)?;
        }
        begin::osds(at, &ceph, state, &options.program, stop, progress)?;
    }
    if new {
        let all: Vec<String> = pools(&state.config).into_iter().map(|(pool, _)| pool).collect();
        progress.step(&format!("pool {}", all.join(", ")));
        match pairs {
            0 => make_pool(&ceph, &state.config)?,
            _ => pairs::pools::make(&ceph, &state.config)?,
        }
    }
    if state.config.volumes.is_some() {
        progress.step("volumes");
        begin::volumes(at, &ceph, state, &options.program, stop)?;
    }
    progress.step("waiting until every placement group is active and clean");
    wait_healthy(at, &ceph, state, stop)?;
    state.complete = true;
    state.write(at)
}

fn start_manager(at: &Layout, ceph: &Ceph, state: &mut State) -> Result<()> {
    fs::create_dir_all(at.daemon("mgr", "x"))?;
    let mut command = ceph.command("ceph-mgr");
    command.args(["-f", "-i", "x"]);
    state.start(at, Process::hold("mgr.x", &command, &at.output("mgr.x"))?)
}

/// The pools of a lab, each with its copies.
fn pools(config: &LabConfig) -> Vec<(String, u32)> {
    match config.pairs {
        0 => vec![(config.pool.clone(), config.copies())],
        _ => pairs::pools::pools(config),
    }
}

fn start_osds(
    at: &Layout,
    options: &UpOptions,
    ceph: &Ceph,
    state: &mut State,
    plans: &[OsdPlan],
    stop: &Interrupt,
    progress: &mut dyn Progress,
) -> Result<()> {
    let served: Vec<&OsdPlan> = plans.iter().filter(|p| osd::is_served(&state.config, p)).collect();
    if !served.is_empty() {
        let what = if state.config.cache.is_some() { "caches" } else { "disk models" };
        progress.step(&format!("{} {what}", served.len()));
        for plan in &served {
            // Written down first: a mount of a server that was killed is still there.
            state.mounts.push(at.mount(plan.id));
            state.write(at)?;
            state.start(at, osd::serve(at, state, &options.program, plan)?)?;
        }
        for plan in &served {
            let server = state.process(&format!("disk.{}", plan.id)).context("it was just started")?;
            osd::wait_served(at, server, plan.id, stop)?;
        }
    }
    if !state.complete {
        progress.step(&format!("stores of {} OSDs", plans.len()));
        for (plan, (_, uuid)) in plans.iter().zip(&state.osds) {
            osd::prepare(at, &state.config, plan, uuid)?;
        }
        make_stores(ceph, state, plans)?;
    }
    progress.step(&format!("{} OSDs", plans.len()));
    for plan in plans {
        state.start(at, osd::start(at, ceph, state, plan)?)?;
    }
    Ok(())
}

/// Makes all stores at once; meanwhile the monitor hears of the OSDs.
fn make_stores(ceph: &Ceph, state: &State, plans: &[OsdPlan]) -> Result<()> {
    std::thread::scope(|scope| {
        let stores: Vec<_> = (plans.iter().zip(&state.osds))
            .map(|(plan, (_, uuid))| scope.spawn(|| osd::mkfs(ceph, &state.config, plan.id, uuid)))
            .collect();
        let mut told = Ok(String::new());
        for (id, uuid) in &state.osds {
            told = told.and_then(|_| ceph.run(&["osd", "new", uuid, &id.to_string()]));
        }
        for store in stores {
            store.join().map_err(|_| anyhow::anyhow!("making a store panicked"))??;
        }
        told.map(drop)
    })
}

/// Keys of everybody, which the monitor takes in when its own store is made.
fn keys(at: &Layout, ceph: &Ceph, plans: &[OsdPlan]) -> Result<()> {
    let all = at.dir().join("mon.keyring");
    let all = all.to_str().context("the lab's path is UTF-8")?;
    let mut each = vec![
        (
            "client.admin".to_owned(),
            vec![("mon", "allow *"), ("osd", "allow *"), ("mgr", "allow *"), ("mds", "allow *")],
        ),
        (
            format!("client.{CLIENT}"),
            vec![("mon", "profile rbd"), ("osd", "profile rbd"), ("mgr", "profile rbd")],
        ),
        ("mgr.x".to_owned(), vec![("mon", "allow profile mgr"), ("osd", "allow *"), ("mds", "allow *")]),
    ];
    for plan in plans {
        let caps = vec![("mon", "allow profile osd"), ("mgr", "allow profile osd"), ("osd", "allow *")];
        each.push((format!("osd.{}", plan.id), caps));
    }
    ceph.tool(
        "ceph-authtool",
        &["--create-keyring", all, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"],
    )?;
    for (name, caps) in each {
        let file = at.dir().join(format!("ceph.{name}.keyring"));
        let file = file.to_str().context("the lab's path is UTF-8")?;
        let mut args = vec!["--create-keyring", file, "--gen-key", "-n", &name];
        args.extend(caps.iter().flat_map(|(of, cap)| ["--cap", of, cap]));
        ceph.tool("ceph-authtool", &args)?;
        ceph.tool("ceph-authtool", &[all, "--import-keyring", file])?;
    }
    Ok(())
}

fn make_pool(ceph: &Ceph, config: &LabConfig) -> Result<()> {
    let (pool, pgs, size) = (&config.pool, config.pgs().to_string(), config.copies().to_string());
    ceph.run(&["osd", "pool", "create", pool, &pgs, &pgs, "replicated"])?;
    if config.copies() == 1 {
        ceph.run(&["osd", "pool", "set", pool, "size", "1", "--yes-i-really-mean-it"])?;
    } else {
        ceph.run(&["osd", "pool", "set", pool, "size", &size])?;
    }
    ceph.run(&["osd", "pool", "set", pool, "min_size", &conf::least_copies(config).to_string()])?;
    ceph.tool("rbd", &["pool", "init", pool])?;
    Ok(())
}

fn wait_healthy(at: &Layout, ceph: &Ceph, state: &State, stop: &Interrupt) -> Result<()> {
    let begun = Instant::now();
    let mut muted: Vec<&str> = Vec::new();
    let least = u64::from(state.config.pgs()) * pools(&state.config).len() as u64;
    loop {
        stop.check()?;
        for p in &state.processes {
            ensure!(p.alive(), "{} ended: {}", p.name, last_words(at, &p.name));
        }
        let status = ceph.json(&["status"])?;
        let count = |key: &str| status["osdmap"][key].as_u64().unwrap_or(0);
        let pgs = status["pgmap"]["num_pgs"].as_u64().unwrap_or(0);
        let clean: u64 = (status["pgmap"]["pgs_by_state"].as_array().into_iter().flatten())
            .filter(|s| s["state_name"] == "active+clean")
            .filter_map(|s| s["count"].as_u64())
            .sum();
        let health = &status["health"];
        let all_up = count("num_up_osds") == state.osds.len() as u64;
        if all_up && pgs >= least && clean == pgs && health["status"] == "HEALTH_OK" {
            return Ok(());
        }
        let checks: Vec<String> =
            health["checks"].as_object().into_iter().flatten().map(|(k, _)| k.clone()).collect();
        for code in MUTED {
            if checks.iter().any(|c| c == code) && !muted.contains(&code) {
                ceph.run(&["health", "mute", code, "--sticky"])?;
                muted.push(code);
            }
        }
        if begun.elapsed() > LIMIT {
            bail!(
                "after {} s {} of {} OSDs are up, {clean} of {pgs} placement groups active and clean, health {} ({})",
                LIMIT.as_secs(),
                count("num_up_osds"),
                state.osds.len(),
                health["status"].as_str().unwrap_or("unknown"),
                checks.join(", ")
            );
        }
        std::thread::sleep(POLL * 4);
    }
}

/// Adds a dead monitor's own words to the error of a command that failed for it.
fn explain(at: &Layout, state: &State, result: Result<()>) -> Result<()> {
    let gone = state.processes.iter().find(|p| p.name.starts_with("mon.") && !p.alive());
    match (result, gone) {
        (Err(e), Some(p)) => Err(e.context(format!("{} ended: {}", p.name, last_words(at, &p.name)))),
        (other, _) => other,
    }
}

fn last_words(at: &Layout, name: &str) -> String {
    let out = fs::read_to_string(at.output(name)).unwrap_or_default();
    if out.trim().is_empty() { "see its log".to_owned() } else { last_lines(&out, 3) }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_in_which_a_lab_differs_are_named() {
        let have = LabConfig::default();
        let asked = LabConfig { osds: 5, pool: "other".to_owned(), ..LabConfig::default() };
        let words = differing(&asked, &have).expect("settings");
        assert!(
            words.contains("osds is 3, not 5") && words.contains("pool is \"rbd\", not \"other\""),
            "{words}"
        );
        assert_eq!(words.matches(';').count(), 1, "{words}");
    }
}
