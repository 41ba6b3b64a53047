package keys

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/secrets"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host/config"
)

const (
	// minSecretSize limits secrets, in bytes: shorter texts occur by chance, so they are not
	// masked.
	minSecretSize = 4
	// maxSecretSize bounds a secret, in bytes, as a file whose text becomes a value.
	maxSecretSize = 64 << 10
)

var secretWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,200}$`) })

// NewCmdSecret returns the commands about the values of ${secret:NAME}. They need no running
// gateway.
func NewCmdSecret(f *cmdutil.Factory) *cobra.Command {
	return cmdutil.WithSubcommands(f, "secret",
		"Store secrets for servers: passwords, tokens, API keys of ${secret:NAME}", NewCmdSetSecret(f, nil),
		cmdutil.Plain(f, "list", "List the names of the secrets, and the servers that use them", cobra.NoArgs,
			listSecrets),
		cmdutil.WithCompletion(cmdutil.Plain(f, "remove NAME", "Remove a secret", cobra.ExactArgs(1), removeSecret),
			completeSecrets(f)))
}

// NewCmdSetSecret returns the command "gateway secret set".
func NewCmdSetSecret(f *cmdutil.Factory, run cmdutil.Run[*cmdutil.Invocation]) *cobra.Command {
	return cmdutil.WithCompletion(cmdutil.Plain(f, "set NAME",
		"Store a secret, which is read from standard input or a hidden prompt", onlyName, cmdutil.Or(run, setSecret)),
		completeSecrets(f))
}

// onlyName refuses a value among the arguments, without repeating it.
func onlyName(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return exit.UsageError(fmt.Errorf(
			"got %d arguments, want NAME: the value is typed, or read from standard input",
			len(args)))
	}
	return nil
}

// secretNames returns the names of the secrets, sorted.
func secretNames(ctx context.Context, f *cmdutil.Factory) (names []string, err error) {
	v, err := f.Vault.Open()
	if err != nil {
		return nil, err
	}
	keys, err := v.Keys(ctx)
	for _, key := range keys {
		if name, ok := strings.CutPrefix(key, secrets.Prefix); ok {
			names = append(names, name)
		}
	}
	return names, err
}

func completeSecrets(f *cmdutil.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) (found []string, _ cobra.ShellCompDirective) {
		if len(args) == 0 {
			names, _ := secretNames(cmd.Context(), f)
			found = target.Matching(names, typed)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// setSecret stores a secret. It is never an argument, which other users of the machine could read.
func setSecret(ctx context.Context, o *cmdutil.Invocation) error {
	f, name := o.Factory, o.Words[0]
	if !secretWord().MatchString(name) {
		return exit.UsageError(fmt.Errorf(
			"invalid name %q of a secret: must have 1 to 200 of the characters A-Z, a-z, 0-9, ., "+
				"_ and -", term.Shorten(name, term.MaxNameShown)))
	}
	value, err := hosting.ReadSecret(ctx, f, name)
	if err != nil {
		return err
	}
	if err := checkSecret(value); err != nil {
		return exit.UsageError(err)
	}
	v, err := f.Vault.Open()
	if err != nil {
		return err
	}
	if err := v.Update(ctx, secrets.Prefix+name, func([]byte) ([]byte, error) {
		return []byte(value), nil
	}); err != nil {
		return fmt.Errorf("store secret %s: %w", name, err)
	}
	secretChanged(ctx, f, "set secret", name)
	if f.PrintedJSON(map[string]string{"name": name}) {
		return nil
	}
	f.IO.Err.Printf("Stored. Servers use it as ${secret:%s}; a running gateway connects to them again.", name)
	return nil
}

// checkSecret returns an error for a value that cannot be used or masked. It does not repeat the
// value.
func checkSecret(value string) error {
	switch {
	case len(value) < minSecretSize || len(value) > maxSecretSize:
		return fmt.Errorf("invalid value of %d bytes: must be %d to %d: a shorter value cannot be hidden in messages",
			len(value), minSecretSize, maxSecretSize)
	case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
		return errors.New("invalid value: must be text in UTF-8 without NUL")
	}
	return nil
}

func removeSecret(ctx context.Context, o *cmdutil.Invocation) error {
	f, name := o.Factory, o.Words[0]
	names, err := secretNames(ctx, f)
	if !slices.Contains(names, name) {
		return errors.Join(exit.NotFoundError(term.UnknownName("secret", name, names)), err)
	}
	v, err := f.Vault.Open()
	if err == nil {
		err = v.Update(ctx, secrets.Prefix+name, func([]byte) ([]byte, error) { return nil, nil })
	}
	if err != nil {
		return fmt.Errorf("remove secret %s: %w", name, err)
	}
	secretChanged(ctx, f, "remove secret", name)
	if f.PrintedJSON(map[string]string{"removed": name}) {
		return nil
	}
	f.IO.Out.Printf("Removed %s.", name)
	f.IO.Err.Printf("A running gateway ends its connections that use it, after the requests in progress.")
	return nil
}

// A secretReport is a secret in JSON, without its value.
type secretReport struct {
	Name    string   `json:"name"`
	Servers []string `json:"servers"`
	Stored  bool     `json:"stored"`
}

// listSecrets prints the secrets, and those that servers use and that are not stored.
func listSecrets(ctx context.Context, o *cmdutil.Invocation) error {
	f := o.Factory
	names, err := secretNames(ctx, f)
	if err != nil {
		return err
	}
	c, _, err := hosting.ReadConfig(f, "")
	if err != nil {
		return exit.UsageError(err)
	}
	users := map[string][]string{}
	for _, server := range c.File.Names() {
		for _, name := range secretsOf(c.Entries[server]) {
			users[name] = append(users[name], server)
		}
	}
	reports := []secretReport{}
	for _, name := range names {
		reports = append(reports, secretReport{name, append([]string{}, users[name]...), true})
		delete(users, name)
	}
	for name, servers := range users {
		reports = append(reports, secretReport{name, servers, false})
	}
	slices.SortFunc(reports, func(a, b secretReport) int { return strings.Compare(a.Name, b.Name) })
	if f.PrintedJSON(map[string]any{"secrets": reports}) {
		return nil
	}
	var rows [][]string
	for _, r := range reports {
		state := "stored"
		if !r.Stored {
			state = "missing"
		}
		rows = append(rows, []string{term.CleanLine(r.Name), state, hosting.ShownNames(r.Servers)})
	}
	if len(rows) == 0 {
		f.IO.Err.Printf("No secrets yet: store one with \"patchbay gateway secret set NAME\".")
	}
	f.IO.Out.Columns("NAME STATE SERVERS", rows)
	return nil
}

var secretUse = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\$\{secret:([A-Za-z0-9._-]{1,200})\}`)
})

// secretsOf returns the names of the secrets that an entry uses.
func secretsOf(s *config.Server) (names []string) {
	if s == nil {
		return nil
	}
	text := fmt.Sprint(s.Command, s.Args, s.Env, s.EnvFile, s.Dir, s.URL, s.Header)
	for _, m := range secretUse().FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}

// secretChanged makes running gateways use a changed secret, and records the change.
func secretChanged(ctx context.Context, f *cmdutil.Factory, action, name string) {
	path, err := hosting.SecretStamp()
	if err == nil {
		const mode = 0o600
		err = os.WriteFile(path, []byte(time.Now().Format(time.RFC3339Nano)), mode)
	}
	if err != nil {
		f.IO.Err.Printf("patchbay: warning: restart running gateways: %s", term.CleanLine(err.Error()))
	}
	if c, _, err := hosting.ReadConfig(f, ""); err == nil {
		hosting.RecordAdmin(ctx, f, c.File, map[string]any{"action": action, "secret": name})
	}
}
