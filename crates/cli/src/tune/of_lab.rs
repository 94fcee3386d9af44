//! OSDs of a lab are restarted by the lab: no orchestrator and no unit runs them.

use loligo_lab::layout::Layout;
use loligo_lab::state::State;
use std::path::Path;

/// The command that restarts an OSD, if `conf` is the file of a lab whose cluster is `fsid`.
pub(super) fn restart_command(conf: &Path, fsid: Option<&str>) -> Option<String> {
    let at = Layout::at(conf.parent()?).ok()?;
    let lab = State::read(&at).ok()??;
    let program = std::env::current_exe().ok()?;
    (Some(lab.fsid.as_str()) == fsid).then(|| command(&program, at.dir()))
}

/// An OSD that a value has ended is started: there is nothing to be killed then.
fn command(program: &Path, dir: &Path) -> String {
    let [program, dir] = [program, dir].map(|it| quoted(&it.display().to_string()));
    format!(
        "{program} lab fail osd {{id}} --dir {dir} >/dev/null 2>&1; {program} lab mend {{id}} --dir {dir} >/dev/null"
    )
}

/// A word of the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_osd_of_a_lab_is_restarted_by_the_lab() {
        let said = command(Path::new("/usr/bin/loligo"), Path::new("/a lab/it's"));
        assert_eq!(
            said,
            r"'/usr/bin/loligo' lab fail osd {id} --dir '/a lab/it'\''s' >/dev/null 2>&1; '/usr/bin/loligo' lab mend {id} --dir '/a lab/it'\''s' >/dev/null"
        );
        let empty = tempfile::tempdir().expect("a folder");
        assert_eq!(restart_command(&empty.path().join("ceph.conf"), Some("f")), None);
    }
}
