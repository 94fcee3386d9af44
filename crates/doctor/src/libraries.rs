//! Ceph: its libraries, which are loaded where an RBD image is a core, and whether its release is a tested one.

use super::{Case, Check, Finding};
use loligo_ceph::release::{Release, Tested};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let check = Check::new("libraries.ceph", "RBD images are reached by librados2 and librbd1 of this host");
    let mut all = vec![match &case.facts.ceph {
        None => check.ok("no volume needs them"),
        Some(Ok(())) => check.ok("librados and librbd can be loaded"),
        Some(Err(why)) => {
            check.bad(why, "apt-get install librados2 librbd1 (the packages of your Ceph release)")
        }
    }];
    if let (Some(Ok(())), Some(release)) = (&case.facts.ceph, &case.facts.ceph_client) {
        all.push(tested("libraries.release", "librados and librbd", release));
    }
    if let Some(release) = &case.facts.ceph_osd {
        all.push(tested("osd.release", "ceph-osd", release));
    }
    all
}

/// Checks that the suites ran on the release that these programs are of.
fn tested(name: &str, whose: &str, release: &Result<Release, String>) -> Finding {
    let check = Check::new(name, "librbd, OSDs and ceph-volume may behave differently in each release");
    let release = match release {
        Ok(release) => release,
        Err(why) => return check.unknown(format!("the release cannot be told: {why}")),
    };
    match release.tested() {
        Tested::Itself => check.ok(format!("{whose} {release}: a tested release")),
        Tested::Like(other) => check.ok(format!("{whose} {release}: of this series, {other} is tested")),
        Tested::Not => check.warn(
            format!("{whose} {release}: Loligo was never tested on this release"),
            format!("take one of {}, or try a copy of your data first", Release::all_tested()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::fake::Fake;

    #[test]
    fn a_library_that_is_missing_is_bad_where_an_image_needs_it() {
        let mut fake = Fake::new(&[]);
        assert_eq!(fake.verdict(check, "libraries.ceph"), Verdict::Ok);
        fake.facts.ceph = Some(Err("librbd.so.1: cannot open".into()));
        assert!(fake.one(check, "libraries.ceph").mend.is_some_and(|m| m.contains("librbd1")));
    }

    #[test]
    fn a_release_that_was_never_tested_is_told_with_those_that_were() {
        let mut fake = Fake::new(&[]);
        fake.facts.ceph = Some(Ok(()));
        let mut verdict = |release: &Result<Release, String>| {
            fake.facts.ceph_client = Some(release.clone());
            fake.facts.ceph_osd = Some(release.clone());
            assert_eq!(fake.verdict(check, "osd.release"), fake.verdict(check, "libraries.release"));
            fake.one(check, "libraries.release")
        };
        assert_eq!(verdict(&Ok(Release(16, 2, 15))).verdict, Verdict::Ok);
        let like = verdict(&Ok(Release(18, 2, 4)));
        assert!(like.verdict == Verdict::Ok && like.seen.contains("18.2.7 is tested"), "{like:?}");
        let not = verdict(&Ok(Release(19, 2, 3)));
        assert_eq!(not.verdict, Verdict::Warn);
        assert!(not.mend.is_some_and(|m| m.contains("16.2.15, 18.2.7, 20.2.4")));
        assert_eq!(verdict(&Err("no words".into())).verdict, Verdict::Unknown);
    }
}
