package events

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// NewCmdSubscribe returns the command "events subscribe".
func NewCmdSubscribe(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	cmd := withStart(newCmd(f, "subscribe", "Have events sent to a URL", o, cmdutil.Or(run, subscribe),
		checkSubscribe), o)
	addURL(cmd, o)
	cmd.Flags().StringVar(&o.SecretFile, "secret-file", "",
		"the `file` with the secret of the endpoint, - for standard input; a missing file is created")
	cmd.Flags().DurationVar(&o.Expires, "expires", 0, "suggest this lifetime; by default the server decides")
	cmd.Flags().StringVar(&o.Listen, "listen", "",
		"receive and print the events on this `host:port`, to which the URL leads, and unsubscribe at the end")
	cmd.Flags().IntVar(&o.Count, "count", 0, "with --listen, stop after `n` events")
	return cmd
}

// NewCmdUnsubscribe returns the command "events unsubscribe".
func NewCmdUnsubscribe(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	cmd := newCmd(f, "unsubscribe", "End a subscription of a URL", o, cmdutil.Or(run, cmdutil.Bounded(unsubscribe)),
		(*Options).checkURL)
	addURL(cmd, o)
	return cmd
}

func addURL(cmd *cobra.Command, o *Options) {
	cmd.Flags().StringVar(&o.URL, "url", "", "the https `URL` of the endpoint")
}

func (o *Options) checkURL() error {
	if u, err := url.Parse(o.URL); err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("invalid --url %q: must be an https URL", o.URL)
	}
	return nil
}

func checkSubscribe(o *Options) error {
	switch {
	case (o.SecretFile == "") == (o.Listen == ""):
		return errors.New("give either --secret-file, for an endpoint that verifies events with this secret, or " +
			"--listen, to receive events here")
	case o.Count != 0 && o.Listen == "":
		return errors.New("--count requires --listen")
	case o.Expires < 0:
		return fmt.Errorf("invalid --expires %v: must be positive", o.Expires)
	}
	return errors.Join(o.checkURL(), o.checkStart())
}

// webhook returns the options of the subscription.
func (o *Options) webhook() *webhook.SubscribeOptions {
	return &webhook.SubscribeOptions{URL: o.URL, Cursor: o.Cursor, MaxAge: o.MaxAge, TTL: o.Expires}
}

func subscribe(ctx context.Context, o *Options) error {
	if o.Listen != "" {
		return o.WithServer(ctx, func(ctx context.Context, c *mcp.Client) error { return receive(ctx, o, c) })
	}
	return cmdutil.Bounded(subscribeOnce)(ctx, o)
}

// subscribeOnce subscribes for an endpoint that another program serves.
func subscribeOnce(ctx context.Context, o *Options, c *mcp.Client) error {
	e, arguments, err := prepare(ctx, o, c, "subscribe")
	if err != nil {
		return err
	}
	secret, err := o.secret(ctx)
	if err != nil {
		return exit.UsageError(fmt.Errorf("--secret-file: %w", err))
	}
	g, err := webhook.SubscribeOnce(ctx, c, e.Name, arguments, secret, o.webhook())
	if err != nil {
		return err
	}
	o.IO.Err.Done()
	if o.PrintedJSON(newGrantReport(g)) {
		return nil
	}
	expires := "never"
	if !g.Expires.IsZero() {
		expires = g.Expires.Format(time.RFC3339)
	}
	o.IO.Out.Field(7, "id", g.ID)
	o.IO.Out.Field(7, "expires", expires)
	showGrant(o.Factory, g)
	return nil
}

// secret reads the secret of an endpoint, or writes a new secret to a file that does not exist.
func (o *Options) secret(ctx context.Context) (webhook.Secret, error) {
	text, err := o.IO.In.ReadSource(ctx, o.SecretFile)
	if err == nil {
		return webhook.ParseSecret(strings.TrimSpace(string(text)))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return webhook.Secret{}, err
	}
	secret := webhook.NewSecret()
	file, err := os.OpenFile(o.SecretFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return webhook.Secret{}, err
	}
	_, err = file.WriteString(secret.Reveal() + "\n")
	if err = errors.Join(err, file.Close()); err != nil {
		return webhook.Secret{}, err
	}
	o.IO.Err.Printf("A new secret is in %s: the endpoint must verify events with it.", term.CleanLine(o.SecretFile))
	return secret, nil
}

// showGrant prints the news of a grant about deliveries on standard error: standard output must contain only events.
func showGrant(f *cmdutil.Factory, g *webhook.Grant) {
	if g.Truncated {
		f.IO.Err.Printf("patchbay: events were skipped")
	}
	if s := g.Status; s != nil && s.LastError != "" {
		f.IO.Err.Printf("patchbay: the last delivery failed: %s", term.CleanLine(s.LastError))
	}
}

// A grantReport is the value of "events subscribe --json".
type grantReport struct {
	ID            string        `json:"id"`
	RefreshBefore *time.Time    `json:"refreshBefore"`
	Cursor        *string       `json:"cursor"`
	Truncated     bool          `json:"truncated"`
	Status        *statusReport `json:"deliveryStatus,omitzero"`
}

// A statusReport describes the deliveries of a subscription that existed before.
type statusReport struct {
	Active       bool      `json:"active"`
	LastDelivery time.Time `json:"lastDeliveryAt,omitzero"`
	LastError    string    `json:"lastError,omitzero"`
	FailedSince  time.Time `json:"failedSince,omitzero"`
}

func newGrantReport(g *webhook.Grant) *grantReport {
	r := &grantReport{ID: g.ID, Truncated: g.Truncated, Status: (*statusReport)(g.Status)}
	if g.Cursor != "" {
		r.Cursor = &g.Cursor
	}
	if !g.Expires.IsZero() {
		r.RefreshBefore = &g.Expires
	}
	return r
}

func unsubscribe(ctx context.Context, o *Options, c *mcp.Client) error {
	e, arguments, err := prepare(ctx, o, c, "unsubscribe")
	if err != nil {
		return err
	}
	return webhook.Unsubscribe(ctx, c, e.Name, arguments, o.URL)
}
