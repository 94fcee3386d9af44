//! Man pages and completions, from the same words as `--help`. For packages; hidden from the list of commands.

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use loligo_log::out;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write a man page for every command into a folder
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct ManArgs {
    /// The folder; made if it is not there
    dir: PathBuf,
}

/// Print a shell's completions
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct CompletionArgs {
    /// The shell
    shell: Shell,
}

/// Writes them.
pub(crate) fn man(mut all: Command, a: &ManArgs) -> Result<ExitCode> {
    std::fs::create_dir_all(&a.dir).with_context(|| format!("{} cannot be made", a.dir.display()))?;
    all.build();
    page(&all, &a.dir, "loligo", "1")?;
    pages_below(&all, &a.dir, "loligo")?;
    let daemon = all.find_subcommand("daemon").context("there is a daemon")?;
    page(daemon, &a.dir, "loligod", "8")?;
    Ok(ExitCode::SUCCESS)
}

fn pages_below(command: &Command, dir: &Path, name: &str) -> Result<()> {
    for below in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        let name = format!("{name}-{}", below.get_name());
        page(below, dir, &name, "1")?;
        pages_below(below, dir, &name)?;
    }
    Ok(())
}

fn page(command: &Command, dir: &Path, name: &str, section: &str) -> Result<()> {
    // What it is called on the command line is in the synopsis; the page is found by one word.
    let leaked: &'static str = name.to_owned().leak();
    let called = if section == "8" { leaked.to_owned() } else { name.replace('-', " ") };
    let command =
        command.clone().name(leaked).display_name(leaked).bin_name(called).disable_help_subcommand(true);
    let mut text = Vec::new();
    clap_mangen::Man::new(command).section(section).manual("Loligo").render(&mut text)?;
    let path = dir.join(format!("{name}.{section}"));
    std::fs::write(&path, as_written(&String::from_utf8_lossy(&text)))
        .with_context(|| format!("{} cannot be written", path.display()))
}

/// The examples and tables behind the options keep their lines.
fn as_written(page: &str) -> String {
    const EXTRA: &str = ".SH EXTRA\n";
    let Some((before, extra)) = page.split_once(EXTRA) else { return page.to_owned() };
    let (extra, after) = extra.split_once("\n.SH ").unwrap_or((extra.trim_end(), ""));
    let after = if after.is_empty() { "\n".to_owned() } else { format!("\n.SH {after}") };
    format!("{before}.SH NOTES\n.nf\n{extra}\n.fi{after}")
}

/// Prints them.
pub(crate) fn completions(mut all: Command, a: &CompletionArgs) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(a.shell, &mut all, "loligo", &mut text);
    out!("{}", String::from_utf8_lossy(&text));
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_keep_their_lines_wherever_they_stand() {
        let page = ".SH NAME\nx\n.SH EXTRA\na\n  b\n.SH VERSION\nv1\n";
        assert_eq!(as_written(page), ".SH NAME\nx\n.SH NOTES\n.nf\na\n  b\n.fi\n.SH VERSION\nv1\n");
        assert_eq!(as_written(".SH EXTRA\na\n"), ".SH NOTES\n.nf\na\n.fi\n");
        assert_eq!(as_written("a\n"), "a\n");
    }
}
