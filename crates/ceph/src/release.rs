//! Releases of Ceph: the one whose libraries are loaded, and those that the suites have run on.

use crate::ffi::Library;
use std::fmt;
use std::str::FromStr;

/// Those that the suites of images and OSDs run on: `make test` on the host's, `make test-releases` on the others.
pub const TESTED: [Release; 3] = [Release(16, 2, 15), Release(18, 2, 7), Release(20, 2, 4)];

/// A release as Ceph numbers it: 18.2.7 is the seventh of Reef.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u32, pub u32, pub u32);

/// The extent to which a release is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tested {
    /// The suites ran on it.
    Itself,
    /// On another one of its series, this one.
    Like(Release),
    /// On none of its series.
    Not,
}

impl Release {
    /// The extent to which it is tested.
    pub fn tested(self) -> Tested {
        if TESTED.contains(&self) {
            return Tested::Itself;
        }
        let like = TESTED.into_iter().find(|t| (t.0, t.1) == (self.0, self.1));
        like.map_or(Tested::Not, Tested::Like)
    }

    /// Of the libraries, where they say it.
    ///
    /// # Errors
    /// If there are no libraries; what they say, where that is no release.
    pub fn loaded() -> Result<Release, String> {
        let said = Library::get().map_err(|e| e.to_string())?.version();
        let said = said.ok_or("the libraries do not say which release they are of")?;
        said.parse().map_err(|()| format!("the libraries say '{said}'"))
    }

    /// To whoever looks at an image or serves it, where the loaded one was never tested.
    pub(crate) fn notice() -> Option<String> {
        let release = Release::loaded().ok().filter(|r| r.tested() == Tested::Not)?;
        let tested = Release::all_tested();
        Some(format!(
            "Loligo was never tested on Ceph {release}, whose librbd is loaded ({tested} are tested)"
        ))
    }

    /// The tested ones in words.
    pub fn all_tested() -> String {
        TESTED.map(|t| t.to_string()).join(", ")
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl FromStr for Release {
    type Err = ();

    /// Distributions put words of their own behind the numbers, as in `18.2.7-1~deb13u1`.
    fn from_str(text: &str) -> Result<Release, ()> {
        let numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
        let mut numbers = numbers.split('.').map(str::parse);
        let mut next = || numbers.next().and_then(Result::ok).ok_or(());
        Ok(Release(next()?, next()?, next()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_read_with_what_a_distribution_adds() {
        assert_eq!("16.2.15".parse(), Ok(Release(16, 2, 15)));
        assert_eq!("18.2.7-1~deb13u1".parse(), Ok(Release(18, 2, 7)));
        assert_eq!("20.3.0-1234-gabcdef".parse(), Ok(Release(20, 3, 0)));
        for wrong in ["", "Development", "18.2", "v18.2.7", "18..7"] {
            assert_eq!(wrong.parse::<Release>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn a_series_is_known_by_its_first_two_numbers() {
        assert_eq!(Release(18, 2, 7).tested(), Tested::Itself);
        assert_eq!(Release(18, 2, 4).tested(), Tested::Like(Release(18, 2, 7)));
        assert_eq!(Release(18, 1, 7).tested(), Tested::Not);
        assert_eq!(Release(19, 2, 3).tested(), Tested::Not);
    }
}
