//! Claims about options of Ceph that are set for all clients, in the cluster's own configuration.

use crate::cluster::{Cluster, alone, shared};
use crate::driven::LeftOut;
use crate::site::{Image, attach_request};
use loligo_ceph::CephError;
use loligo_ceph::attach::{self, Attachment};

/// Takes an image as client `id`, with a lease of 20 s.
fn take_as(image: &Image, id: &str) -> Result<Attachment, CephError> {
    let keyring = image.cluster.dir.join(format!("{id}.keyring"));
    let spec = format!(
        "{}?conf={}&id={id}&keyring={}",
        image.spec,
        image.cluster.conf().display(),
        keyring.display()
    );
    attach::attach(attach_request(&spec.parse().expect("an image"), &mut |_| Ok(())))
}

/// A client of a test's own, with these rights on monitors.
fn client(cluster: &Cluster, id: &str, mon: &str) {
    let name = format!("client.{id}");
    let keyring = cluster.dir.join(format!("{id}.keyring"));
    let caps = ["mon", mon, "osd", "profile rbd", "mgr", "profile rbd"];
    let keyring = keyring.display().to_string();
    cluster.ceph(&[&["auth", "get-or-create", &name], &caps[..], &["-o", &keyring]].concat());
}

#[test]
fn central_options_are_overruled_or_refused() {
    let Some((cluster, _shared)) = shared("options set centrally") else { return };
    let _whole = LeftOut::nothing();
    client(cluster, "central", "profile rbd");
    let image = Image::new(cluster, "central-options");
    let set = |name: &str, value: &str| cluster.ceph(&["config", "set", "client.central", name, value]);
    let needed = [
        ("rbd_cache", "true", "false"),
        ("rbd_persistent_cache_mode", "ssd", "disabled"),
        ("rbd_plugins", "pwl_cache", ""),
        ("rbd_parent_cache_enabled", "true", "false"),
        ("rbd_non_blocking_aio", "false", "true"),
        ("rados_osd_op_timeout", "7", "0"),
        ("objecter_tick_interval", "20", "0.5"),
    ];
    for (name, central, _) in needed {
        set(name, central);
    }
    // This one shows that the cluster's words reach the client at all.
    set("rbd_readahead_trigger_requests", "17");
    let taken = take_as(&image, "central").expect("the image");
    let held = |name: &str| taken.image.option(name).expect("an option");
    assert_eq!(held("rbd_readahead_trigger_requests"), "17");
    for (name, _, value) in needed {
        let found = held(name);
        let same = found == value || found.parse().is_ok_and(|n: f64| value.parse() == Ok(n));
        assert!(same, "{name} is '{found}'");
    }
    taken.image.detach(false).expect("an end");
    for (name, value) in
        [("rbd_default_snapshot_quiesce_mode", "skip"), ("rbd_blocklist_on_break_lock", "false")]
    {
        set(name, value);
        let why = take_as(&image, "central").expect_err("others go by it too").to_string();
        assert!(why.contains(&format!("'ceph config rm client {name}'")), "{why}");
        cluster.ceph(&["config", "rm", "client.central", name]);
    }
    image.is_free();
}

/// OSDs that forget clients after so long, until this is dropped.
struct Forgetful(&'static Cluster);

impl Drop for Forgetful {
    fn drop(&mut self) {
        let rm = ["config", "rm", "osd", "osd_client_watch_timeout"];
        // The test has failed already where this does.
        let _ = self.0.tool("ceph", "admin", &rm).output();
    }
}

#[test]
fn the_lease_follows_the_watch_timeout_of_osds() {
    let Some((cluster, _alone)) = alone("a shorter watch timeout") else { return };
    let _whole = LeftOut::nothing();
    client(cluster, "asks", r#"profile rbd, allow command "config get""#);
    client(cluster, "told", "profile rbd");
    let image = Image::new(cluster, "forgotten-soon");
    let _forgetful = Forgetful(cluster);
    cluster.ceph(&["config", "set", "osd", "osd_client_watch_timeout", "24"]);
    cluster.ceph(&["config", "set", "client.told", "osd_client_watch_timeout", "15"]);
    for (id, seconds) in [("asks", "16.0"), ("told", "10.0")] {
        let taken = take_as(&image, id).expect("the image");
        let said = taken.warnings.join("; ");
        assert!(said.contains(&format!("the lease is {seconds} s")), "{id}: {said}");
        taken.image.detach(false).expect("an end");
    }
    cluster.ceph(&["config", "set", "client.told", "osd_client_watch_timeout", "5"]);
    let why = take_as(&image, "told").expect_err("it is too short").to_string();
    assert!(why.contains("osd_client_watch_timeout"), "{why}");
    image.is_free();
}
