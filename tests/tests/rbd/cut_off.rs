//! Claims about a host that loses its network while others take its images over.

use crate::cluster::{Cluster, is_long, shared};
use crate::site::{ESHUTDOWN, Image};
use crate::writer::{End, Kept, Writer, fresh, look, read_all};
use loligo_tests::skip::skip;
use std::time::{Duration, Instant};

/// So few blocks that the cache holds all of them dirty: nothing but the lease makes writers wait.
const BLOCKS: usize = 6000;
/// The time that a word that the image is ours is good for, where nothing is said.
const LEASE: Duration = Duration::from_secs(20);
/// The time that the network is gone: longer than the cluster waits for a client.
const CUT: Duration = Duration::from_secs(40);

/// Writes acknowledged since `shadow` was new.
fn acks(shadow: &Kept) -> u64 {
    look(shadow).acked.iter().map(|v| u64::from(*v)).sum()
}

fn round(cluster: &'static Cluster, number: u64) -> Option<()> {
    let images = ["seized", "snapped"].map(|n| Image::new(cluster, &format!("{n}{number}")));
    let [seized, snapped] = &images;
    let (sites, shadows) = (images.each_ref().map(|i| i.site("first")), [fresh(), fresh()]);
    let mut servers = Vec::new();
    for site in &sites {
        servers.push(site.serve_on_client(&[])?);
    }
    let start = |n: usize| Writer::start(&sites[n].socket(), &shadows[n], number * 2 + n as u64, BLOCKS);
    let writers = [start(0), start(1)];
    writers.iter().for_each(|w| w.goes_on(3000));

    let cut = cluster.cut_client_off();
    let begun = Instant::now();
    // Nothing has been promised to anybody else yet.
    writers.iter().for_each(|w| w.goes_on(500));
    let second = seized.site("second");
    let (taker, paused) = std::thread::scope(|s| {
        let steals = s.spawn(|| {
            let taker = second.serve(&["--steal", "--force-without-cache"]);
            (taker, read_all(&second.socket()))
        });
        // A stock client waits until the watch of who is cut off ends, and does it by itself then.
        s.spawn(|| cluster.rbd(&["snap", "create", "--no-progress", &snapped.at("meanwhile")]));
        std::thread::sleep((LEASE + Duration::from_secs(1)).saturating_sub(begun.elapsed()));
        let paused = shadows.each_ref().map(acks);
        std::thread::sleep(CUT.saturating_sub(begun.elapsed()));
        (steals.join().expect("the second host"), paused)
    });
    let (taker, found) = taker;
    println!("taken over and snapshot taken within {:?}", begun.elapsed());
    assert_eq!(shadows.each_ref().map(acks), paused, "acknowledged after the lease");
    drop(cut);
    let back = Instant::now();
    for (writer, server) in writers.into_iter().zip(&servers) {
        assert_eq!(writer.ended(), End::Refused(ESHUTDOWN), "{}", server.words());
    }
    println!("lost {:?} after the network was back", back.elapsed());
    assert_eq!(shadows.each_ref().map(acks), paused, "acknowledged after the lease");
    sites.iter().zip(&servers).for_each(|(site, server)| site.is_lost(server));

    // What a stock client had found is still what is there.
    let at_snapshot = snapped.export(&snapped.at("meanwhile"));
    look(&shadows[1]).holds_at_most(&at_snapshot);
    assert!(snapped.export(&snapped.spec) == at_snapshot, "something landed late");
    // What the second host writes is all that is added to what it had found.
    let new = fresh();
    let versions = look(&shadows[0]).holds_at_most(&found);
    look(&new).settle(versions);
    let writer = Writer::start(&second.socket(), &new, number + 1000, BLOCKS);
    writer.goes_on(2000);
    assert_eq!(writer.stop(), End::Done, "{}", taker.words());
    second.flush();
    taker.stop().expect("a clean stop");
    seized.is_whole_and_free(&look(&new));

    // Nothing that was acknowledged is gone from the cache.
    for server in servers {
        server.stop().expect("a lost service stops");
    }
    let words = sites[1].refused(&sites[1].core(), &[]);
    assert!(words.contains("somebody else had image"), "{words}");
    let server = sites[1].serve(&["--force"]);
    look(&shadows[1]).holds(&read_all(&sites[1].socket())).unwrap_or_else(|e| panic!("{e}"));
    sites[1].flush();
    server.stop().expect("a clean stop");
    snapped.is_whole_and_free(&look(&shadows[1]));
    Some(())
}

#[test]
fn a_cut_off_host_acknowledges_nothing_after_its_lease() {
    let what = "a host that is cut off";
    let Some((cluster, _shared)) = shared(what) else { return };
    for number in 0..if is_long() { 5 } else { 1 } {
        if round(cluster, number).is_none() {
            return skip(what, "needs root and iproute2");
        }
    }
}
