use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memmap2::MmapMut;

/// File systems on which bytes that were written once can be written again whatever happens: tmpfs,
/// ext2 to ext4, xfs (the numbers of `statfs(2)`). On others, such as those that copy on write, a
/// full disk would kill a process that writes through a mapping.
const IN_PLACE: [u64; 3] = [0x0102_1994, 0xef53, 0x5846_5342];

/// The bytes of a ring file. What is written stays when the process is killed.
#[derive(Debug)]
pub(super) enum Store {
    /// Well under a microsecond a line.
    Mapped(MmapMut),
    /// A system call a line.
    File(File),
}

impl Store {
    /// Takes a file that has been written whole, so that every block is there.
    pub(super) fn of(file: File) -> Self {
        // What cannot be asked or mapped is written.
        let in_place = rustix::fs::fstatfs(&file)
            .is_ok_and(|system| IN_PLACE.contains(&(system.f_type as u64)));
        if !in_place {
            return Self::File(file);
        }
        // SAFETY: the file is new, its name has this process's id in it, and nobody but this process
        // writes or cuts it; its blocks are there.
        match unsafe { MmapMut::map_mut(&file) } {
            Ok(map) => Self::Mapped(map),
            Err(_) => Self::File(file),
        }
    }

    /// Writes bytes at an offset.
    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all_at(bytes, offset as u64),
            Self::Mapped(map) => {
                let place = map.get_mut(offset..offset + bytes.len());
                let place = place.ok_or_else(|| io::Error::other("beyond the end of the file"))?;
                place.copy_from_slice(bytes);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_mapped_file_and_a_written_one_hold_the_same() -> io::Result<()> {
        for mapped in [true, false] {
            let mut file = tempfile::tempfile()?;
            file.write_all_at(&[b' '; 4096], 0)?;
            let own = file.try_clone()?;
            let mut store = if mapped { Store::of(own) } else { Store::File(own) };
            store.write(b"forward", 1024)?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            assert_eq!((&bytes[1024..1031], bytes.len()), (&b"forward"[..], 4096));
        }
        Ok(())
    }
}
