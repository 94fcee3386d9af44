//! Claims about a host whose power goes: of its cache only what was flushed is certain, and what has reached the image stays there.

use crate::cluster::{is_long, shared};
use crate::site::{Image, SIZE, Site};
use crate::writer::read_all;
use loligo_sim::rng::Rng;
use loligo_tests::history::{Crash, History};
use loligo_tests::load::{End, Load, Mix};
use loligo_tests::lossy::Mounted;
use loligo_tests::server::{Server, Volume};
use loligo_tests::skip;
use std::time::{Duration, Instant};

/// Reads everything; what is there must be allowed after a power cut.
fn verified(site: &Site<'_>, server: &Server, history: &mut History) -> Load {
    let mut load = Load::connect(&site.socket(), Volume::NAME, 2).expect("a connection");
    let end = load.verify(history, Some(Crash::PowerLoss));
    assert_eq!(end.unwrap_or_else(|e| panic!("{e:?}: {}", server.words())), End::Done, "{}", server.words());
    load
}

/// The power goes at some time under load, and comes back.
fn outage(fs: &Mounted, rng: &mut Rng, history: &mut History, load: &mut Load, server: Server) {
    let survives = rng.draw();
    if rng.chance(1, 2) {
        fs.power().power_cut_after(rng.range(200..8_000), survives);
    }
    let late = Instant::now() + Duration::from_millis(rng.range(500..4_000));
    let mix = Mix { flush: rng.pick(&[1, 3, 10]), fua: rng.pick(&[0, 5, 30]), ..Mix::default() };
    let mut requests = Rng::new(rng.draw());
    let end = load.run(history, &mut requests, &mix, || {
        if Instant::now() > late {
            fs.power().power_cut(survives);
        }
        false
    });
    assert_eq!(end.unwrap_or_else(|e| panic!("{e:?}: {}", server.words())), End::Lost);
    assert!(!fs.power().is_on(), "requests failed under power: {}", server.words());
    // It may have given up by itself when its device failed.
    let words = server.words();
    server.kill().unwrap_or_else(|e| assert!(!words.contains("panicked"), "{e:?}"));
    history.crashed(Crash::PowerLoss);
    fs.power().power_on();
}

#[test]
fn no_flushed_write_is_lost_with_the_power_of_the_caches_host() {
    let what = "power loss of the cache's host";
    let Some((cluster, _shared)) = shared(what) else { return };
    if let Err(why) = skip::fuse() {
        return skip::skip(what, &why);
    }
    let mut lost = 0;
    for number in 0..if is_long() { 20 } else { 2 } {
        let seed = 100 + number;
        let image = Image::new(cluster, &format!("unpowered{number}"));
        let mut site = image.site("a");
        let (mut rng, mut history) = (Rng::new(seed), History::new(SIZE));
        let at = site.dir.join("fs");
        std::fs::create_dir(&at).expect("a folder");
        let fs = Mounted::new(&at, rng.draw()).expect("the lossy file system");
        site.cache = at.join("cache");
        for _ in 0..3 {
            let server = site.serve(&[]);
            let mut load = verified(&site, &server, &mut history);
            outage(&fs, &mut rng, &mut history, &mut load, server);
        }
        let server = site.serve(&[]);
        drop(verified(&site, &server, &mut history));
        site.flush();
        let volume = read_all(&site.socket());
        history.check(0, &volume, None).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        server.stop().expect("a clean stop");
        assert!(image.export(&image.spec) == volume, "seed {seed}: the image is not what the volume was");
        image.is_free();
        lost += history.stepped_back;
    }
    println!("{lost} sectors seen without their newest write");
    assert!(lost > 0, "the power cuts took nothing: they show nothing");
}
