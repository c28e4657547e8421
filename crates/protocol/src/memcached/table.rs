//! The table of commands.
//!
//! A row: identifier, name, and effect on items. The parser finds commands by this table only, so it names all that
//! there are.

/// The effect of a command on items, as far as its name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: it names no key, or only looks at one.
    None,
    /// It may change an item: its value, its expiry, or whether it is there.
    Changes,
    /// The same, with a value that the client sends behind the line.
    Stores,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which one.
    pub id: Name,
    /// The name that clients use.
    pub name: &'static str,
    /// The effect on items.
    pub effect: Effect,
}

macro_rules! commands {
    ($($id:ident $name:literal $bytes:literal $effect:ident;)*) => {
        /// Every command's name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "the table below says the names")]
        pub enum Name {$($id,)*}

        impl Name {
            /// The command of this name.
            #[inline]
            pub(super) fn of(name: &[u8]) -> Option<Self> {
                match name {
                    $($bytes => Some(Self::$id),)*
                    _ => None,
                }
            }
        }

        /// All commands that are offered.
        pub static COMMANDS: &[Row] = &[$(Row { id: Name::$id, name: $name, effect: Effect::$effect },)*];
    };
}

commands! {
    Get "get" b"get" None;
    Gets "gets" b"gets" None;
    Gat "gat" b"gat" Changes;
    Gats "gats" b"gats" Changes;
    Set "set" b"set" Stores;
    Add "add" b"add" Stores;
    Replace "replace" b"replace" Stores;
    Append "append" b"append" Stores;
    Prepend "prepend" b"prepend" Stores;
    Cas "cas" b"cas" Stores;
    Incr "incr" b"incr" Changes;
    Decr "decr" b"decr" Changes;
    Touch "touch" b"touch" Changes;
    Delete "delete" b"delete" Changes;
    MetaGet "mg" b"mg" Changes;
    MetaSet "ms" b"ms" Stores;
    MetaDelete "md" b"md" Changes;
    MetaArithmetic "ma" b"ma" Changes;
    MetaDebug "me" b"me" None;
    MetaNoop "mn" b"mn" None;
    FlushAll "flush_all" b"flush_all" Changes;
    Version "version" b"version" None;
    Verbosity "verbosity" b"verbosity" None;
    Stats "stats" b"stats" None;
    Quit "quit" b"quit" None;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_alone() {
        for row in COMMANDS {
            assert_eq!(Name::of(row.name.as_bytes()), Some(row.id), "{}", row.name);
            assert_eq!(Name::of(row.name.to_uppercase().as_bytes()), None);
            assert_eq!(Name::of(&row.name.as_bytes()[1..]), None);
        }
    }
}
