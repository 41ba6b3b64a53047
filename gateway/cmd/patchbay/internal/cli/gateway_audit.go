package cli

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// vaultAuditKey is the key of the vault for the seed of the key that signs checkpoints.
const vaultAuditKey = "gateway audit key"

// auditCommand returns the commands about the audit log.
func auditCommand(f *factory) *cobra.Command {
	dir := ""
	cmd := withSubcommands(f, "audit", "Read and verify the audit log of the gateway",
		auditTailCommand(f, &dir),
		auditQueryCommand(f, &dir),
		auditShowCommand(f, &dir),
		auditVerifyCommand(f, &dir),
		auditReplayCommand(f, &dir))
	cmd.PersistentFlags().StringVar(&dir, "dir", "", "`folder` of the log; default: that of the configuration")
	return cmd
}

// openAudit opens the log of a configuration, nil if it has none. It is closed when the program ends.
func openAudit(ctx context.Context, p *factory, f *config.File) (*audit.Log, error) {
	s, err := f.Settings()
	if err != nil || s.Audit == nil || p.Observe.completing {
		return nil, nil //nolint:nilerr // the host returns it
	}
	dir, heads, err := auditDirs(s.Audit, "")
	if err != nil {
		return nil, err
	}
	key, err := auditKey(ctx, p)
	if err != nil {
		return nil, err
	}
	a := s.Audit
	l, err := audit.Open(&audit.Options{Dir: dir, HeadDir: heads, Key: key, Arguments: audit.Arguments(a.Args),
		Sync: audit.Sync(a.Sync), Strict: a.Strict, SegmentSize: a.SegmentSize, SegmentAge: a.SegmentAge, Keep: a.Keep,
		MaxSize: a.MaxSize, Logger: p.IO.logger()})
	if err != nil {
		return nil, fmt.Errorf("%w (member audit of the settings)", err)
	}
	p.audits = append(p.audits, l)
	return l, nil
}

// closeAudits closes the logs, after the hosts that use them.
func closeAudits(f *factory) {
	for _, l := range f.audits {
		if err := l.Close(); err != nil {
			f.IO.Err.printf("patchbay: %s", cleanLine(err.Error()))
		}
	}
	f.audits = nil
}

// auditKey returns the key that signs checkpoints. The first call creates it.
func auditKey(ctx context.Context, f *factory) (ed25519.PrivateKey, error) {
	v, err := f.Vault.openVault()
	var seed []byte
	if err == nil {
		seed, err = stored(ctx, v, vaultAuditKey, func() []byte {
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

// auditDirs returns the folders of a log and of its last checkpoints. given is of the command line.
func auditDirs(a *config.Audit, given string) (dir, heads string, err error) {
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
		if dir, err = stateDir("audit"); err != nil {
			return "", "", err
		}
	}
	if dir, err = filepath.Abs(dir); err == nil && heads == "" {
		sum := sha256.Sum256([]byte(dir))
		const digits = 16 // different folders have different ones
		heads, err = stateDir(filepath.Join("audit-heads", hex.EncodeToString(sum[:])[:digits]))
	}
	return dir, heads, err
}

// auditLog returns the folders of the log that a command reads. The log must exist.
func auditLog(f *factory, given string) (dir, heads string, err error) {
	settings, err := auditSettings(f)
	if err != nil && given == "" {
		return "", "", usage(err)
	}
	if dir, heads, err = auditDirs(settings, given); err != nil {
		return "", "", err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err == nil && len(found) > 0 {
		return dir, heads, nil
	}
	text := fmt.Sprintf("no audit log in %s", dir)
	if settings == nil && given == "" {
		text += `: add "audit": {} to the member patchbay of the configuration, or name a folder with --dir`
	}
	return dir, heads, notFound(errors.New(text))
}

// auditSettings returns the member audit of the settings, nil if there is none.
func auditSettings(p *factory) (*config.Audit, error) {
	for f, err := range configs.Files(p.Flags.config) {
		if err != nil {
			if p.Config.namesConfig() {
				return nil, err
			}
			continue
		}
		_, has := f.Extra["patchbay"]
		if !has || f.Project || !p.Config.namesConfig() && f.App != "patchbay" {
			continue
		}
		s, err := f.Settings()
		if err != nil {
			return nil, err
		}
		return s.Audit, nil
	}
	return nil, nil
}

// hasHeads reports whether a folder has checkpoints.
func hasHeads(dir string) bool {
	all, err := os.ReadDir(dir)
	return err == nil && len(all) > 0
}
