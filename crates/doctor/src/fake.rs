//! A host made of files, for tests.

use super::facts::Facts;
use super::{Case, Finding, Verdict};
use loligo_block::host_files::HostFiles;
use loligo_daemon::config::Config;

/// A host, what was tried on it, and its configuration.
pub(super) struct Fake {
    dir: tempfile::TempDir,
    pub(super) facts: Facts,
    config: Config,
}

impl Fake {
    /// With these files.
    pub(super) fn new(files: &[(&str, &str)]) -> Fake {
        let fake =
            Fake { dir: tempfile::tempdir().unwrap(), facts: Facts::default(), config: Config::default() };
        files.iter().for_each(|(path, text)| fake.write(path, text));
        fake
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.host().at(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A link, written as it is given.
    pub(super) fn link(&self, path: &str, to: &str) {
        let path = self.host().at(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, path).unwrap();
    }

    pub(super) fn configured(mut self, text: &str) -> Fake {
        self.config = Config::parse(text).unwrap();
        self
    }

    pub(super) fn host(&self) -> HostFiles {
        HostFiles::new(self.dir.path())
    }

    /// The finding of a check.
    pub(super) fn found(&self, check: fn(&Case<'_>) -> Vec<Finding>) -> Vec<Finding> {
        check(&Case { host: &self.host(), facts: &self.facts, config: &self.config })
    }

    /// Its finding under one name.
    pub(super) fn one(&self, check: fn(&Case<'_>) -> Vec<Finding>, name: &str) -> Finding {
        let all = self.found(check);
        let found = all.iter().find(|f| f.check == name);
        found.unwrap_or_else(|| panic!("no {name} in {all:#?}")).clone()
    }

    /// The verdict of a check on it.
    pub(super) fn verdict(&self, check: fn(&Case<'_>) -> Vec<Finding>, name: &str) -> Verdict {
        self.one(check, name).verdict
    }
}
