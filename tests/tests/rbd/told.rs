//! Messages about a volume of the daemon whose core is an image.

use crate::cluster::{Cluster, Frozen, alone, shared, wait_until};
use crate::site::{Image, Site};
use loligo_tests::cli::Cli;
use loligo_tests::server::Server;
use serde_json::Value;
use std::process::Output;
use std::time::{Duration, Instant};

const NAME: &str = "v";

fn words(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// A daemon that serves an image as the volume [`NAME`].
struct Served {
    cli: Cli,
    daemon: Server,
}

impl Served {
    fn on(site: &Site<'_>) -> Served {
        let (cli, config) = (Cli::new(&site.dir), site.dir.join("loligod.toml"));
        let text = format!(
            "[daemon]\nstate-dir = \"{}\"\n[volume.{NAME}]\ncore = \"{}\"\ncache = \"{}\"\ncache-size = \"64m\"\n\
             sparse = true\nmode = \"wb\"\nlisten = [\"unix:{}\"]\nrbd = {{ lease = 5 }}\n",
            site.dir.join("state").display(),
            site.core(),
            site.cache.display(),
            site.socket().display(),
        );
        std::fs::write(&config, text).expect("a configuration");
        let daemon = cli.daemon(&config);
        let served = Served { cli, daemon };
        assert!(served.list().contains("serving") && !served.list().contains("trouble"), "{}", served.list());
        served
    }

    fn list(&self) -> String {
        self.cli.ok(&["volume", "list"])
    }

    fn refuses(&self, args: &[&str], said: &str) {
        let out = self.cli.loligo(args);
        let refused = out.status.code() == Some(3) && words(&out).contains(said);
        assert!(refused, "{args:?}: {}: {}", out.status, words(&out));
    }
}

#[test]
fn the_cache_of_an_image_is_not_detached() {
    let Some((cluster, _shared)) = shared("a detach from an image") else { return };
    let image = Image::new(cluster, "undetached");
    let served = Served::on(&image.site("first"));
    served.refuses(&["volume", "detach", NAME], "an RBD image");
    served.daemon.stop().expect("a clean stop");
}

#[test]
fn a_lease_that_is_over_is_listed() {
    let Some((cluster, _alone)) = alone("a lease that is over in a list") else { return };
    let image = Image::new(cluster, "unheard");
    let served = Served::on(&image.site("first"));
    let frozen = cluster.freeze(&["osd.0", "osd.1", "osd.2", "mon.a"]);
    wait_until("the end of the lease to be told", || {
        served.list().contains("trouble: the lease of its image")
    });
    assert!(served.cli.ok(&["volume", "show", NAME]).contains("# trouble: the lease of its image is over"));
    drop(frozen);
    wait_until("the cluster to be back", || !served.list().contains("trouble"));
    served.daemon.stop().expect("a clean stop");
}

#[test]
fn a_service_that_stands_still_is_no_riddle_of_rbd_status() {
    let Some((cluster, _shared)) = shared("rbd status beside a service that stands still") else { return };
    let image = Image::new(cluster, "still");
    let served = Served::on(&image.site("first"));
    let status = |cluster: &Cluster| {
        let conf = cluster.conf().display().to_string();
        served.cli.loligo(&["rbd", "status", &image.spec, "--conf", &conf, "--id", "loligo"])
    };
    assert!(String::from_utf8_lossy(&status(cluster).stdout).contains("made ready"));
    let frozen = Frozen::service(&served.daemon);
    let begun = Instant::now();
    let out = status(cluster);
    drop(frozen);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("did not answer within 5 s"), "{said}{}", words(&out));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    served.daemon.stop().expect("a clean stop");
}

#[test]
fn a_volume_that_has_lost_its_image_takes_no_mode() {
    let Some((cluster, _shared)) = shared("the mode of a volume that has lost its image") else { return };
    let image = Image::new(cluster, "modeless");
    let served = Served::on(&image.site("first"));
    let taker = image.site("second").serve(&["--steal", "--force-without-cache"]);
    wait_until("the loss to be noticed", || {
        let stats: Value = serde_json::from_str(&served.cli.ok(&["stats", NAME, "--json"])).expect("JSON");
        stats["rbd"]["lease"] == "lost"
    });
    served.refuses(&["mode", NAME, "wt"], "another client's");
    assert!(served.list().contains("trouble: its image is another client's now"), "{}", served.list());
    taker.stop().expect("a clean stop");
    served.daemon.stop().expect("a lost volume stops");
}
