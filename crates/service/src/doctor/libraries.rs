//! Ceph's libraries, which are loaded where an RBD image is a core.

use super::{Case, Check, Finding};

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let check = Check::new("libraries.ceph", "RBD images are reached by librados2 and librbd1 of this host");
    vec![match &case.facts.ceph {
        None => check.ok("no volume needs them"),
        Some(Ok(())) => check.ok("librados and librbd can be loaded"),
        Some(Err(why)) => {
            check.bad(why, "apt-get install librados2 librbd1 (the packages of your Ceph release)")
        }
    }]
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::super::fake::Fake;
    use super::*;

    #[test]
    fn a_library_that_is_missing_is_bad_where_an_image_needs_it() {
        let mut fake = Fake::new(&[]);
        assert_eq!(fake.verdict(check, "libraries.ceph"), Verdict::Ok);
        fake.facts.ceph = Some(Err("librbd.so.1: cannot open".into()));
        assert!(fake.one(check, "libraries.ceph").mend.is_some_and(|m| m.contains("librbd1")));
    }
}
