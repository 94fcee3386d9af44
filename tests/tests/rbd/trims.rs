//! Claims about space that clients give up.

use crate::cluster::{is_long, shared, wait_until};
use crate::shadow::content;
use crate::site::{Image, SIZE};
use crate::writer::request;
use loligo_sim::rng::Rng;
use loligo_tests::nbd::{Client, Command};
use loligo_tests::server::Volume;
use std::collections::HashMap;
use std::sync::mpsc::channel;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// Bytes of the image's objects that are there, as `rbd du` counts them.
fn used(image: &Image) -> u64 {
    let all = image.cluster.rbd_json(&["du", &image.spec]);
    all["images"][0]["used_size"].as_u64().expect("a size")
}

#[test]
fn rbd_du_tells_what_clients_have_trimmed() {
    let Some((cluster, _shared)) = shared("trimmed space") else { return };
    let image = Image::new(cluster, "trimmed");
    let site = image.site("a");
    let server = site.serve(&["--flush-on-stop"]);
    let socket = site.socket();
    let mut model = Vec::new();
    for at in (0..SIZE).step_by(MIB as usize) {
        let data: Vec<u8> = (0..MIB / BLOCK).flat_map(|n| content((at / BLOCK + n) as usize, 1)).collect();
        request(&socket, at, &Command::Write { data: data.clone(), fua: false }).expect("a write");
        model.extend(data);
    }
    site.flush();
    assert_eq!(used(&image), SIZE, "it is full");
    // At once, and in small parts that come one after the other, the last of an object first.
    let zero = |model: &mut Vec<u8>, at: u64, len: u64| {
        model[at as usize..(at + len) as usize].fill(0);
        request(&socket, at, &Command::Trim(len as u32)).expect("a trim");
    };
    zero(&mut model, 0, SIZE / 2);
    for part in (0..32u64).rev().map(|n| n * MIB / 2) {
        zero(&mut model, SIZE / 2 + part, MIB / 2);
    }
    wait_until("objects to be gone", || used(&image) == SIZE / 4);
    // An object that is written to between its parts stays.
    let last = SIZE - 4 * MIB;
    zero(&mut model, last, 2 * MIB);
    let kept = content((last / BLOCK) as usize, 2);
    model[last as usize..][..kept.len()].copy_from_slice(&kept);
    request(&socket, last, &Command::Write { data: kept, fua: false }).expect("a write");
    site.flush();
    zero(&mut model, last + 2 * MIB, 2 * MIB);
    // What is gone can be written again.
    let again = content(5, 3);
    model[5 * BLOCK as usize..][..again.len()].copy_from_slice(&again);
    request(&socket, 5 * BLOCK, &Command::Write { data: again, fua: false }).expect("a write");
    server.stop().expect("a clean stop");
    assert_eq!(used(&image), SIZE / 4 + 4 * MIB);
    assert!(image.export(&image.spec) == model, "a stock client reads otherwise");
    image.object_maps_are_right(&[]);
}

#[test]
fn a_trimmed_object_of_a_clone_shows_no_parent() {
    let Some((cluster, _shared)) = shared("a trimmed clone") else { return };
    let parent = Image::new(cluster, "trim-parent");
    let whole: Vec<u8> = (0..SIZE / BLOCK).flat_map(|n| content(n as usize, 1)).collect();
    let file = parent.site("import").dir.join("whole");
    std::fs::write(&file, &whole).expect("a file");
    cluster.rbd(&["rm", "--no-progress", &parent.spec]);
    cluster.rbd(&["import", "--no-progress", &file.display().to_string(), &parent.spec]);
    cluster.rbd(&["snap", "create", "--no-progress", &parent.at("base")]);
    cluster.rbd(&["snap", "protect", &parent.at("base")]);
    for mode in ["wb", "wt"] {
        let child = Image::existing(cluster, &format!("rbd/trim-child-{mode}"));
        cluster.rbd(&["clone", &parent.at("base"), &child.spec]);
        let (site, mut model) = (child.site("a"), whole.clone());
        let server = site.serve(&["--flush-on-stop", "--mode", mode]);
        let mut zero = |at: u64, len: u64| {
            model[at as usize..(at + len) as usize].fill(0);
            request(&site.socket(), at, &Command::Trim(len as u32)).expect("a trim");
        };
        // Objects that only the parent has: at once, and in parts. Then one that was written to before.
        zero(0, 4 * MIB);
        (0..4).for_each(|n| zero((4 + n) * MIB, MIB));
        let data = content((9 * MIB / BLOCK) as usize, 2);
        request(&site.socket(), 9 * MIB, &Command::Write { data, fua: false }).expect("a write");
        site.flush();
        zero(8 * MIB, 4 * MIB);
        for at in [0, 5 * MIB, 9 * MIB] {
            assert_eq!(request(&site.socket(), at, &Command::Read(BLOCK as u32)), Ok(vec![0; 4096]), "{at}");
        }
        server.stop().expect("a clean stop");
        assert!(child.export(&child.spec) == model, "{mode}: a stock client reads otherwise");
        child.object_maps_are_right(&[]);
    }
}

/// Bytes of the pieces in which space is given up and written beside each other, one request in each at a time.
const CELL: u64 = 256 << 10;
/// Of a few objects, so that they are often given up whole.
const CELLS: u64 = 48;

/// Writes and trims at random, many at a time, and checks what a stock client reads afterwards.
fn mixed(image: &Image, mode: &str, requests: u64) {
    let site = image.site(mode);
    let server = site.serve(&["--flush-on-stop", "--mode", mode]);
    let (send, answers) = channel();
    let mut client = Client::connect(&site.socket(), Volume::NAME, send).expect("a connection");
    let (mut rng, mut model) = (Rng::new(11), image.export(&image.spec));
    let mut flight: HashMap<u64, u64> = HashMap::new();
    for handle in 1..=requests {
        if flight.len() == 16 {
            let answer = answers.recv_timeout(Duration::from_secs(90)).expect("an answer");
            answer.result.expect("it succeeds");
            flight.remove(&answer.handle);
        }
        let free: Vec<u64> = (0..CELLS).filter(|c| flight.values().all(|f| f != c)).collect();
        let cell = rng.pick(&free);
        flight.insert(handle, cell);
        let at = cell * CELL;
        if rng.chance(9, 10) {
            model[at as usize..][..CELL as usize].fill(0);
            client.send(handle, at, &Command::Trim(CELL as u32)).expect("a connection");
            continue;
        }
        let at = at + rng.below(CELL / BLOCK) * BLOCK;
        let data = content((at / BLOCK) as usize, handle as u32);
        model[at as usize..][..data.len()].copy_from_slice(&data);
        client.send(handle, at, &Command::Write { data, fua: false }).expect("a connection");
    }
    for _ in flight {
        let answer = answers.recv_timeout(Duration::from_secs(90)).expect("an answer");
        answer.result.expect("it succeeds");
    }
    drop(client);
    server.stop().expect("a clean stop");
    let found = image.export(&image.spec);
    let wrong = found.chunks(4096).zip(model.chunks(4096)).filter(|(f, m)| f != m).count();
    assert!(wrong == 0 && found.len() == model.len(), "{mode}: {wrong} blocks are wrong");
    image.object_maps_are_right(&[]);
}

#[test]
fn writes_beside_trims_of_their_objects_are_kept() {
    let Some((cluster, _shared)) = shared("writes beside trims") else { return };
    let image = Image::new(cluster, "trims-and-writes");
    let requests = if is_long() { 20_000 } else { 1500 };
    for mode in ["wt", "wb"] {
        mixed(&image, mode, requests);
    }
}
