//! The layout of an image's bytes in its objects.
//!
//! RBD spreads units of `stripe_unit` bytes over `stripe_count` objects in turn. The object size and the stripe unit are two
//! numbers even where the count is 1, so that each has a type.

/// Bytes of an object: two to the power of the image's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectSize(u64);

impl ObjectSize {
    /// Of an image whose objects have so many bytes, one at least.
    pub fn new(bytes: u64) -> ObjectSize {
        ObjectSize(bytes.max(1))
    }

    /// In bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

/// Bytes that lie together in one object before the next object's turn comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StripeUnit(u64);

impl StripeUnit {
    /// Of so many bytes.
    pub fn new(bytes: u64) -> StripeUnit {
        StripeUnit(bytes)
    }

    /// In bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

/// The place of each byte of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of its objects.
    pub object: ObjectSize,
    /// Bytes in turn.
    pub unit: StripeUnit,
    /// Objects that take turns.
    pub count: u64,
}

impl Layout {
    /// True if object `n` holds the bytes from `n` times the object size on, in order: one object takes no turns, and whole objects
    /// in turn are what they are without turns.
    pub fn is_linear(self) -> bool {
        self.count <= 1 || self.unit.0 == self.object.0
    }

    /// The reason why a group of writes cannot go to one object; nothing: it can.
    pub(crate) fn ungrouped(self) -> Option<String> {
        (!self.is_linear()).then(|| {
            format!("it is striped over {} objects in units of {} bytes", self.count, self.unit.bytes())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(object: u64, unit: u64, count: u64) -> Layout {
        Layout { object: ObjectSize::new(object), unit: StripeUnit::new(unit), count }
    }

    #[test]
    fn only_units_smaller_than_objects_in_turn_are_not_linear() {
        for (object, unit, count, linear) in [
            (4 << 20, 4 << 20, 1, true),
            (8 << 20, 4 << 20, 1, true),
            (4 << 20, 65536, 1, true),
            (4 << 20, 4 << 20, 16, true),
            (4 << 20, 65536, 16, false),
            (4 << 20, 2 << 20, 2, false),
        ] {
            let layout = layout(object, unit, count);
            assert_eq!(layout.is_linear(), linear, "{layout:?}");
            assert_eq!(layout.ungrouped().is_none(), linear, "{layout:?}");
        }
        assert!(layout(4 << 20, 65536, 16).ungrouped().unwrap().contains("over 16 objects"));
    }
}
