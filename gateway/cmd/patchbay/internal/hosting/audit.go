package hosting

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
)

// vaultAuditKey is the key of the vault for the seed of the key that signs checkpoints.
const vaultAuditKey = "gateway audit key"

// openAudit opens the audit log that a configuration names, or returns nil. The log is closed at exit.
func openAudit(ctx context.Context, p *cmdutil.Factory, f *config.File) (*audit.Log, error) {
	s, err := gatewayconfig.Read(f)
	if err != nil || s.Audit == nil || p.Observe.Completing {
		return nil, nil //nolint:nilerr // the host returns it
	}
	dir, heads, err := AuditDirs(s.Audit, "")
	if err != nil {
		return nil, err
	}
	key, err := AuditKey(ctx, p)
	if err != nil {
		return nil, err
	}
	a := s.Audit
	l, err := audit.Open(&audit.Options{Dir: dir, HeadDir: heads, Key: key, Arguments: audit.Arguments(a.Args),
		Sync: audit.Sync(a.Sync), Strict: a.Strict, SegmentSize: int64(a.SegmentSize),
		SegmentAge: time.Duration(a.SegmentAge), Keep: time.Duration(a.Keep), MaxSize: int64(a.MaxSize),
		Logger: p.IO.Logger()})
	if err != nil {
		return nil, fmt.Errorf("%w (member audit of the settings)", err)
	}
	p.Exit.Add(cmdutil.ExitLogs, func() {
		if err := l.Close(); err != nil {
			p.IO.Err.Printf("patchbay: %s", term.CleanLine(err.Error()))
		}
	})
	return l, nil
}

// AuditKey returns the key that signs checkpoints. The first call creates it.
func AuditKey(ctx context.Context, f *cmdutil.Factory) (ed25519.PrivateKey, error) {
	v, err := f.Vault.Open()
	var seed []byte
	if err == nil {
		seed, err = Stored(ctx, v, vaultAuditKey, func() []byte {
			b := make([]byte, ed25519.SeedSize)
			_, _ = rand.Read(b) // never fails
			return b
		})
	}
	if err == nil && len(seed) != ed25519.SeedSize {
		err = errors.New("the stored key is invalid")
	}
	if err != nil {
		return nil, fmt.Errorf("load the key of the audit log: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// AuditDirs returns the folders of a log and of its last checkpoints. given is of the command line.
func AuditDirs(a *gatewayconfig.Audit, given string) (dir, heads string, err error) {
	if a != nil {
		dir, heads = a.Dir, a.Heads
	}
	if given != "" {
		if dir, err = filepath.Abs(given); err != nil {
			return "", "", err
		}
		if a == nil || a.Dir != dir {
			heads = ""
		}
	}
	if dir == "" {
		if dir, err = userdir.Dir("audit"); err != nil {
			return "", "", err
		}
	}
	if dir, err = filepath.Abs(dir); err == nil && heads == "" {
		sum := sha256.Sum256([]byte(dir))
		const digits = 16 // enough that no two folders share a name
		heads, err = userdir.Dir(filepath.Join("audit-heads", hex.EncodeToString(sum[:])[:digits]))
	}
	return dir, heads, err
}

// RecordAdmin adds a record of each action to the audit log of a configuration that names a log.
func RecordAdmin(ctx context.Context, p *cmdutil.Factory, f *config.File, details ...map[string]any) {
	l, err := openAudit(ctx, p, f)
	for _, detail := range details {
		if err != nil || l == nil {
			break
		}
		text, _ := json.Marshal(detail) // of texts, numbers and times
		r := &event.Record{Event: event.Admin, Start: time.Now(), Detail: text}
		r.Server, _ = detail["server"].(string)
		err = l.Record(r)
	}
	if err != nil {
		p.IO.Err.Printf("patchbay: warning: not recorded in the audit log: %s", term.CleanLine(err.Error()))
	}
}
