package vault

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// readPrivate reads a file that nobody but its owner may reach.
func readPrivate(path string, most int) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: it is no regular file", path, ErrDamaged)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := checkOwner(path, info); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err != nil {
		return nil, err
	}
	if len(text) > most {
		return nil, fmt.Errorf("%s: %w: it has more than %d bytes", path, ErrDamaged, most)
	}
	return text, nil
}

// checkPrivate refuses a directory that others than its owner can reach.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: %w: it is no directory", dir, ErrDamaged)
	}
	return checkOwner(dir, info)
}

// writeFile puts a file in the place of an older one: after a crash there is the one or the other, whole. The caller holds
// a lock that belongs to the file.
func writeFile(path string, text []byte) error {
	fresh := path + ".new" // one that a crash has left is written over
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync())
	if err := errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(fresh) // nothing reads it
		return err
	}
	if err := replaceFile(fresh, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(filepath.Dir(path))
}
