//! What goes to stdout.

/// As `print!`, but whoever reads may have closed the pipe (`| head`, `| grep -q`): a command ends as it would have.
macro_rules! out {
    ($($words:tt)*) => {{
        use std::io::Write;
        let _ = write!(std::io::stdout(), $($words)*);
    }};
}

/// The same with the end of a line.
macro_rules! outln {
    ($($words:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}
pub(crate) use {out, outln};
