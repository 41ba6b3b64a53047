package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// vaultSecret begins the keys of the vault with the values of ${secret:NAME}.
const vaultSecret = "gateway secret "

const (
	// minSecretSize is the size of the shortest secret, in bytes: shorter texts are not masked, since they
	// are in many others.
	minSecretSize = 4
	// maxSecretSize bounds a secret, in bytes, as a file whose text becomes a value.
	maxSecretSize = 64 << 10
)

var secretWord = regexp.MustCompile(`^[A-Za-z0-9._-]{1,200}$`)

// secretCommand returns the commands about the values of ${secret:NAME}. They need no running gateway.
func secretCommand(f *factory) *cobra.Command {
	return withSubcommands(f, "secret", "Store secrets for servers: passwords, tokens, API keys of ${secret:NAME}",
		&cobra.Command{Use: "set NAME", Short: "Store a secret, which is read from standard input or a hidden prompt",
			DisableFlagsInUseLine: true, Args: onlyName, ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				return completeSecrets(f, cmd, args, typed)
			},
			RunE: func(cmd *cobra.Command, args []string) error { return setSecret(cmd.Context(), f, args[0]) }},
		&cobra.Command{Use: "list", Short: "List the names of the secrets, and the servers that use them",
			DisableFlagsInUseLine: true, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return listSecrets(cmd.Context(), f) }},
		&cobra.Command{Use: "remove NAME", Short: "Remove a secret",
			DisableFlagsInUseLine: true, Args: cobra.ExactArgs(1), ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				return completeSecrets(f, cmd, args, typed)
			},
			RunE: func(cmd *cobra.Command, args []string) error { return removeSecret(cmd.Context(), f, args[0]) }})
}

// onlyName refuses a value among the arguments, without repeating it.
func onlyName(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage(fmt.Errorf("got %d arguments, want NAME: the value is typed, or read from standard input",
			len(args)))
	}
	return nil
}

// secretNames returns the names of the secrets, sorted.
func secretNames(ctx context.Context, f *factory) (names []string, err error) {
	v, err := f.Vault.openVault()
	if err != nil {
		return nil, err
	}
	keys, err := v.Keys(ctx)
	for _, key := range keys {
		if name, ok := strings.CutPrefix(key, vaultSecret); ok {
			names = append(names, name)
		}
	}
	return names, err
}

func completeSecrets(
	f *factory, cmd *cobra.Command, args []string, typed string,
) ([]string, cobra.ShellCompDirective) {
	var found []string
	if len(args) == 0 {
		names, _ := secretNames(cmd.Context(), f)
		for _, name := range names {
			if strings.HasPrefix(name, typed) {
				found = append(found, name)
			}
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// setSecret stores a secret. It is never an argument, which other users of the machine could read.
func setSecret(ctx context.Context, f *factory, name string) error {
	if !secretWord.MatchString(name) {
		return usage(fmt.Errorf("invalid name %q of a secret: must have 1 to 200 of the characters A-Z, a-z, 0-9, ., "+
			"_ and -", shorten(name, maxNameShown)))
	}
	value, err := readSecret(ctx, f, name)
	if err != nil {
		return err
	}
	if err := checkSecret(value); err != nil {
		return usage(err)
	}
	v, err := f.Vault.openVault()
	if err != nil {
		return err
	}
	if err := v.Update(ctx, vaultSecret+name, func([]byte) ([]byte, error) { return []byte(value), nil }); err != nil {
		return fmt.Errorf("store secret %s: %w", name, err)
	}
	secretChanged(ctx, f, "set secret", name)
	if f.Flags.json {
		f.IO.Out.value(map[string]string{"name": name})
		return nil
	}
	f.IO.Err.printf("Stored. Servers use it as ${secret:%s}; a running gateway connects to them again.", name)
	return nil
}

// readSecret reads the value of a secret: hidden on a terminal, else all of standard input without line
// breaks at its end.
func readSecret(ctx context.Context, f *factory, name string) (string, error) {
	if f.IO.mayPrompt() {
		f.IO.Err.prompt("Value of " + name + " (hidden): ")
		return f.Config.inputLine(ctx, true)
	}
	if isTerminal(f.IO.In.r) {
		return "", usage(errors.New("missing value: must come from standard input, such as a pipe, or be typed on a " +
			"terminal"))
	}
	data, err := f.IO.In.readSource(ctx, "-")
	return strings.TrimRight(string(data), "\r\n"), err
}

// checkSecret returns an error for a value that cannot be used or masked. It does not repeat the value.
func checkSecret(value string) error {
	switch {
	case len(value) < minSecretSize || len(value) > maxSecretSize:
		return fmt.Errorf("invalid value of %d bytes: must have %d to %d: shorter ones cannot be hidden in messages",
			len(value), minSecretSize, maxSecretSize)
	case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
		return errors.New("invalid value: must be text in UTF-8 without NUL")
	}
	return nil
}

func removeSecret(ctx context.Context, f *factory, name string) error {
	names, err := secretNames(ctx, f)
	if !slices.Contains(names, name) {
		return errors.Join(notFound(unknownName("secret", name, names)), err)
	}
	v, err := f.Vault.openVault()
	if err == nil {
		err = v.Update(ctx, vaultSecret+name, func([]byte) ([]byte, error) { return nil, nil })
	}
	if err != nil {
		return fmt.Errorf("remove secret %s: %w", name, err)
	}
	secretChanged(ctx, f, "remove secret", name)
	if f.Flags.json {
		f.IO.Out.value(map[string]string{"removed": name})
		return nil
	}
	f.IO.Out.printf("Removed %s.", name)
	f.IO.Err.printf("A running gateway ends its connections that use it, after the requests in progress.")
	return nil
}

// A secretReport is a secret in JSON, without its value.
type secretReport struct {
	Name    string   `json:"name"`
	Servers []string `json:"servers"`
	Stored  bool     `json:"stored"`
}

// listSecrets prints the secrets, and those that servers use and that are not stored.
func listSecrets(ctx context.Context, f *factory) error {
	names, err := secretNames(ctx, f)
	if err != nil {
		return err
	}
	c, _, err := readConfig(f, "")
	if err != nil {
		return usage(err)
	}
	users := map[string][]string{}
	for _, server := range c.file.Names() {
		for _, name := range secretsOf(c.entries[server]) {
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
	if f.Flags.json {
		f.IO.Out.value(map[string]any{"secrets": reports})
		return nil
	}
	var rows [][]string
	for _, r := range reports {
		state := "stored"
		if !r.Stored {
			state = "missing"
		}
		rows = append(rows, []string{cleanLine(r.Name), state, shownNames(r.Servers)})
	}
	if len(rows) == 0 {
		f.IO.Err.printf("No secrets yet: store one with \"patchbay gateway secret set NAME\".")
	}
	f.IO.Out.columns("NAME STATE SERVERS", rows)
	return nil
}

var secretUse = regexp.MustCompile(`\$\{secret:([A-Za-z0-9._-]{1,200})\}`)

// secretsOf returns the names of the secrets that an entry uses.
func secretsOf(s *config.Server) (names []string) {
	if s == nil {
		return nil
	}
	text := fmt.Sprint(s.Command, s.Args, s.Env, s.EnvFile, s.Dir, s.URL, s.Header)
	for _, m := range secretUse.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}

// secretLookup returns the value of a variable "secret:NAME". It is asked for only by servers whose entries
// have it. found is whether the variable is of that form.
func (p *vaults) secretLookup(ctx context.Context, variable string) (value string, set, found bool) {
	name, ok := strings.CutPrefix(variable, "secret:")
	if !ok {
		return "", false, false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), vaultTimeout)
	defer cancel()
	v, err := p.openVault()
	var stored []byte
	if err == nil {
		stored, err = v.Load(ctx, vaultSecret+name)
	}
	if err != nil { // the secret may still be stored: connections that use it stay open
		p.IO.Err.printf("patchbay: secret %s: %s", cleanLine(name), cleanLine(err.Error()))
		last, known := p.lastSecrets.Load(name)
		value, _ = last.(string)
		return value, known, true
	}
	if stored == nil {
		p.lastSecrets.Delete(name)
		return "", false, true
	}
	p.lastSecrets.Store(name, string(stored))
	return string(stored), true, true
}

// secretStamp returns the file that is written when a secret changes: gateways watch it.
func secretStamp() (string, error) {
	dir, err := stateDir("gateway")
	return filepath.Join(dir, "secrets-changed"), err
}

// secretChanged makes running gateways use a changed secret, and records the change.
func secretChanged(ctx context.Context, f *factory, action, name string) {
	path, err := secretStamp()
	if err == nil {
		const mode = 0o600
		err = os.WriteFile(path, []byte(time.Now().Format(time.RFC3339Nano)), mode)
	}
	if err != nil {
		f.IO.Err.printf("patchbay: warning: restart running gateways: %s", cleanLine(err.Error()))
	}
	if c, _, err := readConfig(f, ""); err == nil {
		recordAdmin(ctx, f, c.file, map[string]any{"action": action, "secret": name})
	}
}
