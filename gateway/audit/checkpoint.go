package audit

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// A Checkpoint is a signed statement that a chain contains a record with a hash.
type Checkpoint struct {
	Chain string `json:"chain"`
	// Seq is the number of the last record that the checkpoint covers, and Hash its hash in hex.
	Seq  uint64 `json:"of"`
	Hash string `json:"head"`
	Time string `json:"at"`
	// Key is the public key in hex, and Signature an Ed25519 signature in base64.
	Key       string `json:"key"`
	Signature string `json:"sig"`
}

// message returns the bytes that are signed. The lengths of its parts are fixed or separated by zeros.
func (p *Checkpoint) message() []byte {
	return fmt.Appendf(nil, "patchbay audit checkpoint\x00%s\x00%d\x00%s\x00%s", p.Chain, p.Seq, p.Hash, p.Time)
}

// verify reports whether a key signed the checkpoint.
func (p *Checkpoint) verify(key ed25519.PublicKey) bool {
	sig, err := base64.StdEncoding.DecodeString(p.Signature)
	return err == nil && len(key) == ed25519.PublicKeySize && ed25519.Verify(key, p.message(), sig)
}

// addCheckpoint encodes a checkpoint of all records before it.
func (c *chain) addCheckpoint(now time.Time) {
	p := &Checkpoint{Chain: c.name, Seq: c.seq, Hash: hex.EncodeToString(c.last[:]), Time: timeText(now),
		Key: c.encoder.public}
	p.Signature = base64.StdEncoding.EncodeToString(ed25519.Sign(c.opts.Key, p.message()))
	c.add(&entry{event: eventCheckpoint, detail: p}, now)
	c.unsigned, c.head = 0, p
}

// sign writes a checkpoint, unless all records are signed.
func (c *chain) sign() error {
	if c.unsigned == 0 {
		return nil
	}
	return c.write(c.opts.Sync != SyncNever, c.addCheckpoint)
}

func (c *chain) headPath(name string) string { return filepath.Join(c.opts.HeadDir, name+headSuffix) }

// saveHead writes the last checkpoint to its file. A failure is logged: the file then contains an
// older checkpoint.
func (c *chain) saveHead() {
	text, err := json.Marshal(c.head)
	if err == nil {
		err = replaceFile(c.headPath(c.name), append(text, '\n'), c.opts.Sync != SyncNever)
	}
	if err != nil {
		c.opts.Logger.Warn("audit: the last checkpoint was not stored", "dir", c.opts.HeadDir, "error", err)
	}
}

// loadHead returns the last checkpoint of a chain, or nil if its file does not exist.
func (c *chain) loadHead(name string) (*Checkpoint, error) {
	p, err := readHead(c.headPath(name))
	if err == nil && p != nil && !p.verify(c.opts.public()) {
		err = errOtherKey
	}
	return p, err
}

// maxHead bounds the file of a checkpoint.
const maxHead = 4 << 10

func readHead(path string) (*Checkpoint, error) {
	text, err := readSmall(path, maxHead)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var p Checkpoint
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("invalid checkpoint in %s: %w", path, err)
	}
	return &p, nil
}

// replaceFile replaces a file such that it contains either the old or the new text.
func replaceFile(path string, text []byte, sync bool) (err error) {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) // a chain has one writer
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the first error is reported
		}
	}()
	_, err = f.Write(text)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err == nil && sync {
		err = syncDir(filepath.Dir(path))
	}
	return err
}
