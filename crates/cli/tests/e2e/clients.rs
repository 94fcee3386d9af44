//! Clients that others wrote.

use crate::rig::{MIB, Rig, client, have};
use std::fs;

#[test]
fn fio_verifies_a_cache_a_bare_core_and_a_modelled_disk() {
    if !have("fio") {
        return;
    }
    let rig = Rig::new(64 * MIB);
    let cached = rig.args(&["--shards", "2"]);
    let with = |core: &'static str| {
        ["serve", "--name", "vol", "--bare", "--core", core, "--listen", "unix:sock"].to_vec()
    };
    let sides = [(cached, "24m"), (with("file:core"), "24m"), (with("hdd:core?rpm=10000"), "1m")];
    for (args, size) in sides {
        let served = rig.serve_args(&args);
        let uri = format!("--uri={}", rig.uri());
        let size = format!("--size={size}");
        let load = [
            "--name=load",
            "--ioengine=nbd",
            &uri,
            "--rw=randrw",
            "--bsrange=512-64k",
            "--iodepth=16",
            &size,
        ];
        let verify =
            ["--verify=crc32c", "--verify_fatal=1", "--fsync=32", "--randseed=7", "--verify_state_save=0"];
        client(rig.dir.path(), "fio", &[&load[..], &verify[..]].concat());
        served.stop();
    }
}

#[test]
fn nbdinfo_and_nbdcopy_see_one_export_and_get_its_data_back() {
    if !have("nbdinfo") || !have("nbdcopy") {
        return;
    }
    let rig = Rig::new(32 * MIB);
    let served = rig.serve(&["--shards", "2"]);
    let listed = client(rig.dir.path(), "nbdinfo", &["--list", &rig.uri()]);
    assert!(listed.contains("export=\"vol\"") && listed.contains("can_multi_conn: true"), "{listed}");
    let map = client(rig.dir.path(), "nbdinfo", &["--map", &rig.uri()]);
    assert!(map.contains("hole,zero") && !map.contains("data"), "an empty core is a hole: {map}");
    let mut image = vec![0u8; 32 << 20];
    for (i, b) in image[(3 << 20)..(20 << 20)].iter_mut().enumerate() {
        *b = (i / 512 % 253) as u8;
    }
    fs::write(rig.path("in"), &image).unwrap();
    client(rig.dir.path(), "nbdcopy", &["--flush", "in", &rig.uri()]);
    client(rig.dir.path(), "nbdcopy", &[&rig.uri(), "out"]);
    assert!(fs::read(rig.path("out")).unwrap() == image);
    served.stop();
}

#[test]
fn qemu_io_writes_zeroes_discards_and_reads() {
    if !have("qemu-io") {
        return;
    }
    let rig = Rig::new(32 * MIB);
    for args in
        [rig.args(&[]), vec!["serve", "--name", "vol", "--bare", "--core", "core", "--listen", "unix:sock"]]
    {
        let served = rig.serve_args(&args);
        let socket = format!("nbd:unix:{}:exportname=vol", rig.path("sock").display());
        let commands = [
            "write -P 0x11 0 3M",
            "write -z 1M 512k",
            "write -z -u 2M 256k",
            "read -P 0x11 0 1M",
            "read -P 0 1M 512k",
            "read -P 0 2M 256k",
            "write -f -P 0x22 512 1536",
            "read -P 0x22 512 1536",
            "discard 2560k 256k",
            "flush",
        ];
        let mut arguments = vec!["-f", "raw", socket.as_str()];
        commands.iter().for_each(|c| arguments.extend(["-c", c]));
        let said = client(rig.dir.path(), "qemu-io", &arguments);
        assert!(!said.contains("failed") && !said.contains("error"), "{said}");
        served.stop();
    }
}
