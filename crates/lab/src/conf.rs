//! The cluster's `ceph.conf`.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::config::{Data, LabConfig};
use crate::layout::Layout;
use crate::monitor::Monitor;
use crate::namespaces;
use crate::state::State;

/// BlueStore's cache for each OSD unless `--set` says otherwise, bytes: small, so that a small machine holds several and
/// reads come from the disks.
pub const OSD_CACHE: u64 = 64 << 20;

/// The text of the file; `size`: bytes of an OSD's file. Options of `--set` come last in their section, where they win.
pub fn text(at: &Layout, state: &State, size: u64) -> String {
    let mut sections: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
    let mut put = |section: &'static str, options: Vec<(&str, String)>| {
        let of = sections.entry(section).or_default();
        of.extend(options.into_iter().map(|(k, v)| (k.to_owned(), v)));
    };
    put("global", global(at, state));
    put("mon", mon(at, &state.config));
    put("mgr", mgr(at));
    put("osd", osd(at, &state.config, size));
    // Several clients of one name run at a time, and would fight for one socket.
    put("client", vec![("admin_socket", String::new())]);
    for (key, value) in &state.config.set {
        let Some((section, option)) = key.rsplit_once('.') else { continue };
        sections.entry(section).or_default().push((option.to_owned(), value.clone()));
    }
    let mut text = String::from("# Written by 'loligo lab up': a lab's cluster, not a production one.\n");
    for (section, options) in sections {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n[{section}]");
        for (key, value) in options {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
    text
}

fn global(at: &Layout, state: &State) -> Vec<(&'static str, String)> {
    let config = &state.config;
    let ids: Vec<&str> = state.mons.iter().map(|mon| mon.id.as_str()).collect();
    let mons: Vec<String> = state.mons.iter().map(Monitor::addresses).collect();
    let mut options = vec![
        ("fsid", state.fsid.clone()),
        ("mon_initial_members", ids.join(",")),
        ("mon_host", mons.join(",")),
        ("auth_cluster_required", "cephx".to_owned()),
        ("auth_service_required", "cephx".to_owned()),
        ("auth_client_required", "cephx".to_owned()),
        // Absolute, so that CEPH_CONF alone is enough for every tool.
        ("keyring", format!("{}/ceph.$name.keyring", at.dir().display())),
        ("run_dir", at.run().display().to_string()),
        ("admin_socket", format!("{}/$name.asok", at.run().display())),
        ("pid_file", format!("{}/$name.pid", at.run().display())),
        ("log_file", format!("{}/$name.log", at.log().display())),
        ("crash_dir", format!("{}/crash", at.dir().display())),
        ("osd_pool_default_size", config.copies().to_string()),
        ("osd_pool_default_min_size", least_copies(config).to_string()),
        ("osd_pool_default_pg_autoscale_mode", "off".to_owned()),
        ("osd_crush_chooseleaf_type", u32::from(spread(state)).to_string()),
    ];
    // A controller has a link to its partner too, which clients do not reach.
    let own = match config.pairs {
        0 => (!config.in_namespaces()).then(|| format!("{}/32", state.address)),
        _ => Some(namespaces::network(&state.address)),
    };
    let public = config.public_network.clone().or(own);
    if let Some(network) = public {
        options.push(("public_network", network));
    }
    if let Some(network) = &config.cluster_network {
        options.push(("cluster_network", network.clone()));
    }
    options
}

/// Copies without which a write waits.
pub(crate) fn least_copies(config: &LabConfig) -> u32 {
    if config.copies() > 2 || config.pairs > 0 { 2.min(config.copies()) } else { 1 }
}

/// True if copies go to different CRUSH hosts: only where there are enough.
fn spread(state: &State) -> bool {
    let hosts = match state.config.in_namespaces() {
        true => state.osds.len(),
        false => state.config.layout.len(),
    };
    hosts >= state.config.copies() as usize && hosts > 0
}

fn mon(at: &Layout, config: &LabConfig) -> Vec<(&'static str, String)> {
    let data = format!("{}/mon.$id", at.dir().display());
    // Monitors know one another by the key that is in each one's folder.
    let mut options = vec![("keyring", format!("{data}/keyring")), ("mon_data", data)];
    let fixed = [
        // A lab lives on whatever disk there is.
        ("mon_data_avail_warn", "2"),
        ("mon_data_avail_crit", "1"),
        ("mon_data_size_warn", "50G"),
        ("auth_allow_insecure_global_id_reclaim", "false"),
        ("mon_warn_on_pool_no_redundancy", "false"),
        ("mon_warn_on_pool_no_app", "false"),
        ("mon_allow_pool_size_one", "true"),
        ("mon_allow_pool_delete", "true"),
        ("mon_max_pg_per_osd", "1000"),
        // A daemon that dies is to be missed soon.
        ("mon_osd_min_down_reporters", "1"),
    ];
    options.extend(fixed.map(|(k, v)| (k, v.to_owned())));
    if config.pairs > 0 {
        // The partner takes over; nothing is to be copied away meanwhile.
        options.push(("mon_osd_down_out_subtree_limit", "host".to_owned()));
    }
    options
}

fn mgr(at: &Layout) -> Vec<(&'static str, String)> {
    vec![
        ("mgr_data", format!("{}/mgr.$id", at.dir().display())),
        // What no lab needs only costs memory and time to load.
        ("mgr_initial_modules", "".to_owned()),
    ]
}

fn osd(at: &Layout, config: &LabConfig, size: u64) -> Vec<(&'static str, String)> {
    let mut options = vec![
        ("osd_data", format!("{}/osd.$id", at.dir().display())),
        ("osd_objectstore", "bluestore".to_owned()),
        ("bluestore_cache_autotune", "false".to_owned()),
        ("bluestore_cache_size", OSD_CACHE.to_string()),
        ("osd_crush_update_on_start", (config.pairs == 0).to_string()),
    ];
    if config.pairs > 0 {
        // Two daemons of one OSD may run at a time, one of them fenced: neither is to keep the other from its files.
        options.push(("pid_file", String::new()));
        options.push(("admin_socket", "$osd_data/asok".to_owned()));
        // Ceph takes the array's files for spinning disks, and spares them.
        options.push(("bluestore_debug_enforce_settings", "ssd".to_owned()));
        options.push(("osd_recovery_sleep_hdd", "0".to_owned()));
    }
    if matches!(config.data, Data::Kind(_)) {
        options.push(("bluestore_block_size", size.to_string()));
    }
    options
}
