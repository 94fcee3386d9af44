//! Two controllers over shared arrays.
//!
//! * [`reservation`] is the persistent reservation of one LUN, as SPC-5 has it: the rules that an array keeps.
//! * [`writes`] are the writes that an array has taken and not yet ended, which a fence must reach.
//! * [`lun`] puts both together: the model of a LUN that the lab's array and the simulator share.
//! * [`fence`] takes a LUN from a dead controller by the kernel's calls, and reads back that it has it.
//! * [`lease`] says how long an array's word counts towards clients.
//! * [`plan`] names the two sides, their keys and the units that move between them.
//! * [`machine`] decides what a side does; it does no I/O.
//! * [`role`] names its roles, and [`omit`] the steps that tests leave out.
//! * [`beat`] is what the two sides tell each other.

pub mod beat;
pub mod fence;
pub mod lease;
pub mod lun;
pub mod machine;
pub mod omit;
pub mod plan;
pub mod reservation;
pub mod role;
pub mod writes;
