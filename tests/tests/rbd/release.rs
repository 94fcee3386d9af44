//! The release of Ceph that this suite runs on.

use loligo_ceph::release::Release;
use loligo_tests::skip::skip;
use std::process::Command;

#[test]
fn the_release_is_told_from_the_loaded_libraries() {
    let Ok(said) = Command::new("rbd").arg("--version").output() else {
        return skip("the release of librbd", "rbd is missing: apt-get install ceph-common");
    };
    // ceph version 18.2.7 (...) reef (stable)
    let said = String::from_utf8(said.stdout).expect("text");
    let installed = said.split_whitespace().nth(2).expect("a version");
    let loaded = Release::loaded().expect("they say it");
    println!("{loaded}: {:?}", loaded.tested());
    assert_eq!(Ok(loaded), installed.parse::<Release>(), "{said}");
}
