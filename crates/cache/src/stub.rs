//! stand-in until policy has it
use loligo_block::Shared;
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict { Admit, Probation, Refuse }
#[derive(Debug)] pub struct Admission;
impl Admission { pub fn new(_: crate::params::AdmissionKind, _: u32) -> Self { Admission } pub fn admit(&mut self, _k: u64, _o: u32) -> Verdict { Verdict::Admit } pub fn bytes(&self) -> usize { 0 } }
#[derive(Debug)] pub struct Probation;
impl Probation { pub fn new(_: u32) -> Self { Probation } pub fn get(&mut self, _: u64) -> Option<Shared> { None } pub fn insert(&mut self, _: u64, _: Shared) {} pub fn remove(&mut self, _: u64) {} }
#[derive(Debug)] pub struct Streams;
impl Streams { pub fn new(_: u32) -> Self { Streams } pub fn observe(&mut self, _: u64, _: u64, _: bool) -> u64 { 0 } }
