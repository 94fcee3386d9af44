//! The array of the pair. Its LUNs keep their bytes from one process of it to the next.

use loligo_tests::server::program;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The LUNs, each with its bytes.
pub(crate) const LUNS: [(&str, &str); 4] =
    [("quorum", "64m"), ("osd1", "3g"), ("osd2", "3g"), ("cache", "64m")];

/// A running array with a path for each side; ended and unmounted by its drop.
#[derive(Debug)]
pub(crate) struct Array(Child);

impl Array {
    /// One in the folder `dir` with this defect. Nobody is registered on its LUNs.
    pub(crate) fn start(dir: &Path, defect: Option<&str>) -> Array {
        let mut command = Command::new(program());
        command.args(["lab", "array"]);
        for (lun, size) in LUNS {
            let bytes = dir.join(format!("{lun}.bytes"));
            // Those of an array before this one, which was not there yet at first.
            let _ = fs::remove_file(dir.join(format!("{lun}.bytes.pr")));
            command.args(["--lun", &format!("{lun}={}:{size}", bytes.display())]);
        }
        for side in ["a", "b"] {
            let path = dir.join(side);
            fs::create_dir_all(&path).expect("a folder");
            command.args(["--path", &format!("{side}={}", path.display())]);
        }
        command.args(defect.into_iter().flat_map(|defect| ["--defect", defect]));
        let mut array = Array(command.stdout(Stdio::piped()).spawn().expect("the program runs"));
        let mut line = String::new();
        let out = array.0.stdout.as_mut().expect("it is piped");
        BufReader::new(out).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        array
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        // SAFETY: the child is ours and not yet waited for.
        unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGTERM) };
        let _ = self.0.wait();
    }
}
