//! The machines that there are: processor, board and kernel.

use std::process::Command;

/// A processor, a board, and the kernel that boots on it. All of them are emulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Platform {
    /// x86-64 with Debian's kernel 6.12.
    #[default]
    X86,
    /// x86-64 with Debian's newest kernel, which has modules of targets.
    X86Newest,
    /// aarch64 with Debian's kernel whose pages have 16 KiB.
    Arm16k,
}

/// The processor on x86-64: one with an instruction for checksums, and without the wide registers and carry-less
/// multiplications that look fast to a program and are the slowest of all when emulated.
const X86_CPU: &str = "Nehalem";
/// All that the emulator has, pages of 16 KiB among it. Keys in pointers are computed in a way that is cheap to emulate.
const ARM_CPU: &str = "max,pauth-impdef=on";

impl Platform {
    /// The emulator's program, and the package that has it.
    pub(super) fn emulator(self) -> (&'static str, &'static str) {
        match self {
            Platform::X86 | Platform::X86Newest => ("qemu-system-x86_64", "qemu-system-x86"),
            Platform::Arm16k => ("qemu-system-aarch64", "qemu-system-arm"),
        }
    }

    /// The emulator with board and processor.
    pub(super) fn command(self) -> Command {
        let (board, cpu) = match self {
            Platform::X86 | Platform::X86Newest => ("q35", X86_CPU),
            Platform::Arm16k => ("virt", ARM_CPU),
        };
        let mut qemu = Command::new(self.emulator().0);
        qemu.args(["-accel", "tcg,thread=multi", "-machine", board, "-cpu", cpu]);
        qemu
    }

    /// The kernel's name of its serial console.
    pub(super) fn console(self) -> &'static str {
        match self {
            Platform::X86 | Platform::X86Newest => "ttyS0",
            Platform::Arm16k => "ttyAMA0",
        }
    }

    /// The program that takes out of another what only a debugger reads.
    pub(super) fn strip(self) -> &'static str {
        match self {
            Platform::X86 | Platform::X86Newest => "strip",
            Platform::Arm16k => "aarch64-linux-gnu-strip",
        }
    }
}
