//! Real clients against a server on a thread.

use crate::common::volume::Volume;
use crate::common::{Running, client, installed};
use loligo_export::Limits;

#[test]
fn nbdinfo_sees_the_export_with_all_it_can_do() {
    if !installed("nbdinfo") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let s = Running::ram(dir.path());
    let (ok, text) = client("nbdinfo", &[&s.uri()]);
    assert!(ok, "{text}");
    for want in [
        "base:allocation",
        "export-size: 67108864",
        "can_cache: true",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "block_size_minimum: 512",
        "block_size_maximum: 33554432",
    ] {
        assert!(text.contains(want), "no '{want}' in:\n{text}");
    }
    let (ok, text) = client("nbdinfo", &["--list", &s.uri()]);
    assert!(ok && text.contains("export=\"disk\""), "{text}");
}

#[test]
fn nbdcopy_brings_an_image_in_and_out_over_many_connections() {
    if !installed("nbdcopy") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, back) = (dir.path().join("in"), dir.path().join("out"));
    let bytes: Vec<u8> = (0..16u32 << 20)
        .map(|i| if i >> 20 & 1 == 0 { 0 } else { (i.wrapping_mul(7919) >> 9) as u8 })
        .collect();
    std::fs::write(&image, &bytes).unwrap();
    let addr = format!("unix:{}", dir.path().join("s").display());
    let s = Running::start(&addr, Volume::ram(16 << 20), Limits::default(), None);
    for (from, to) in [(image.to_str().unwrap(), &*s.uri()), (&*s.uri(), back.to_str().unwrap())] {
        let (ok, text) = client("nbdcopy", &["--connections=4", from, to]);
        assert!(ok, "{text}");
    }
    assert!(std::fs::read(&back).unwrap() == bytes);
}

#[test]
fn qemu_reads_what_it_wrote_zeroed_and_discarded() {
    if !installed("qemu-io") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let s = Running::ram(dir.path());
    let uri = s.uri();
    let mut args = vec!["-f", "raw", &uri];
    for c in [
        "write -P 7 0 40M",
        "write -P 9 512 512",
        "write -f -P 3 1M 4k",
        "write -z 2M 1M",
        "write -z -u 4M 1M",
        "discard 6M 64k",
        "flush",
        "read -P 7 0 512",
        "read -P 9 512 512",
        "read -P 3 1M 4k",
        "read -P 0 2M 1M",
        "read -P 0 4M 1M",
        "read -P 7 8M 32M",
    ] {
        args.extend(["-c", c]);
    }
    let (ok, text) = client("qemu-io", &args);
    assert!(ok && !text.contains("failed"), "{text}");
}

#[test]
fn qemu_img_maps_holes_and_compares_a_copy_as_equal() {
    if !installed("qemu-img") || !installed("qemu-io") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let addr = format!("unix:{}", dir.path().join("s").display());
    let volume = Volume::file(image.to_str().unwrap()).unwrap();
    let s = Running::start(&addr, volume, Limits::default(), None);
    let (ok, text) = client("qemu-io", &["-f", "raw", &s.uri(), "-c", "write -P 5 1M 1M"]);
    assert!(ok, "{text}");
    let (ok, map) = client("qemu-img", &["map", "--output=json", "-f", "raw", &s.uri()]);
    assert!(ok && map.contains("\"start\": 1048576, \"length\": 1048576, \"depth\": 0"), "{map}");
    let copy = dir.path().join("copy");
    let copy = copy.to_str().unwrap();
    let (ok, text) = client("qemu-img", &["convert", "-f", "raw", "-O", "raw", &s.uri(), copy]);
    assert!(ok, "{text}");
    let (ok, text) = client("qemu-img", &["compare", "-f", "raw", "-F", "raw", &s.uri(), copy]);
    assert!(ok && text.contains("identical"), "{text}");
}

#[test]
fn fio_verifies_what_it_wrote_at_depth() {
    if !installed("fio") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let s = Running::ram(dir.path());
    for bs in ["--bs=4k", "--bsrange=512-256k"] {
        let uri = format!("--uri={}", s.uri());
        let args = [
            "--name=v",
            "--ioengine=nbd",
            &uri,
            "--rw=randwrite",
            bs,
            "--iodepth=32",
            "--size=32m",
            "--verify=crc32c",
            "--do_verify=1",
            "--verify_fatal=1",
        ];
        let (ok, text) = client("fio", &args);
        assert!(ok && text.contains("err= 0"), "{text}");
    }
}

#[test]
fn a_disk_has_more_users_than_one() {
    if !installed("qemu-io") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let s = Running::ram(dir.path());
    std::thread::scope(|scope| {
        for i in 0..6u64 {
            let uri = s.uri();
            scope.spawn(move || {
                let (write, read) = (format!("write -P {i} {i}M 1M"), format!("read -P {i} {i}M 1M"));
                let (ok, text) =
                    client("qemu-io", &["-f", "raw", &uri, "-c", &write, "-c", "flush", "-c", &read]);
                assert!(ok && !text.contains("failed"), "{text}");
            });
        }
    });
}
