package cli

import (
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A pty is a terminal whose user is a test.
type pty struct {
	t               *testing.T
	master, replica *os.File

	mu      sync.Mutex // guards the fields below
	changed *sync.Cond
	shown   string
	done    bool
}

func newPTY(t *testing.T) *pty {
	t.Helper()
	master, replica := openTerminal(t)
	p := &pty{t: t, master: master, replica: replica}
	p.changed = sync.NewCond(&p.mu)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b := make([]byte, 1000)
		for {
			n, err := master.Read(b)
			p.mu.Lock()
			p.shown += string(b[:n])
			p.changed.Broadcast()
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { replica.Close(); <-ended; master.Close() })
	return p
}

// await waits until text is shown, and then types. It returns false if the command ends before.
func (p *pty) await(text, typed string) (found bool) {
	p.mu.Lock()
	for !strings.Contains(p.shown, text) && !p.done {
		p.changed.Wait()
	}
	if found = strings.Contains(p.shown, text); found {
		p.shown = ""
	}
	p.mu.Unlock()
	if _, err := io.WriteString(p.master, typed); err != nil {
		p.t.Error(err)
	}
	return found
}

// run runs a command at the terminal while user types.
func (p *pty) run(user func(), args ...string) outcome {
	var stdout strings.Builder
	var typing sync.WaitGroup
	typing.Go(user)
	status := Run(p.t.Context(), args, p.replica, &stdout, p.replica)
	p.mu.Lock()
	p.done = true
	p.changed.Broadcast()
	p.mu.Unlock()
	typing.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return outcome{status, stdout.String(), p.shown}
}

// A question is answered by one key, without Enter, unless it guards something, such as opening a
// page. What was typed before it answers nothing.
func TestYesOrNoTakesOneKey(t *testing.T) {
	url := listen(t, newServer("demo"))
	odd := listen(t, newOddServer())
	const field = "y or n"
	for name, test := range map[string]struct {
		args  []string
		waits string
		typed string
		want  int
	}{
		"y":         {[]string{url, "deploy", "environment=staging"}, field, "y", exitOK},
		"N":         {[]string{url, "deploy", "environment=staging"}, field, "N", exitTool},
		"other key": {[]string{url, "deploy", "environment=staging"}, field, " \x7f\x1b[A\x1bOBy", exitOK},
		":decline":  {[]string{url, "deploy", "environment=staging"}, field, ":decline\n", exitTool},
		"Ctrl-D":    {[]string{url, "deploy", "environment=staging"}, field, "\x04", exitTool},
		"Enter":     {[]string{odd, "page"}, "Open it", "\n", exitTool},
		"page y":    {[]string{odd, "page"}, "Open it", "y\x15n\n", exitTool}, // Ctrl-U deletes the line
	} {
		t.Run(name, func(t *testing.T) {
			p := newPTY(t)
			o := p.run(func() { p.await(test.waits, test.typed) }, append([]string{"call"}, test.args...)...)
			if o.status != test.want {
				t.Errorf("exit code %d, want %d: %s%s", o.status, test.want, o.stdout, o.stderr)
			}
			mode, err := unix.IoctlGetTermios(int(p.replica.Fd()), ioctlGetTermios)
			if err != nil || mode.Lflag&unix.ICANON == 0 || mode.Lflag&unix.ECHO == 0 {
				t.Errorf("the terminal is left without lines and echo: %+v, %v", mode, err)
			}
		})
	}
	t.Run("typed before", func(t *testing.T) {
		p := newPTY(t)
		if _, err := io.WriteString(p.master, "y\n"); err != nil {
			t.Fatal(err)
		}
		if o := p.run(func() { p.await(field, "n") }, "call", url, "deploy",
			"environment=staging"); o.status != exitTool {
			t.Errorf("exit code %d, want %d: %s%s", o.status, exitTool, o.stdout, o.stderr)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		p := newPTY(t)
		ctx, cancel := context.WithCancel(t.Context())
		var typing sync.WaitGroup
		typing.Go(func() { p.await(field, ""); cancel() })
		if status := Run(ctx, []string{"call", url, "deploy", "environment=staging"}, p.replica, io.Discard,
			p.replica); status != exitInterrupted {
			t.Errorf("exit code %d, want %d", status, exitInterrupted)
		}
		typing.Wait()
		mode, err := unix.IoctlGetTermios(int(p.replica.Fd()), ioctlGetTermios)
		if err != nil || mode.Lflag&unix.ICANON == 0 {
			t.Errorf("the terminal is left without lines: %v", err)
		}
		_, _ = io.WriteString(p.master, "\n") // ends the pending read
	})
}

// Enter after other keys, such as a word that means no, does not take the default.
func TestEnterAfterIgnoredKeysAsksAgain(t *testing.T) {
	url := newBookServer(t)
	const ask = "Send this?"
	for _, ignored := range []string{"stop", " ", "\x1b[A", "x\x7f"} {
		for answer, status := range map[string]int{"y": exitOK, "\n": exitOK, ":cancel\n": exitUsage} {
			p := newPTY(t)
			asked := 0
			o := p.run(func() {
				p.await("text: ", "go\n")
				for _, typed := range []string{ignored + "\n", answer} {
					if p.await(ask, typed) {
						asked++
					}
				}
			}, "get", url, "review", "code=x")
			if o.status != status || asked != 2 {
				t.Errorf("%q, %q: exit code %d, asked %d times, want %d, 2: %s%s", ignored, answer, o.status, asked,
					status, o.stdout, o.stderr)
			}
		}
	}
}

// The y and n of other words answer nothing, also if they are typed letter by letter.
func TestLettersOfWordsAnswerNothing(t *testing.T) {
	url := listen(t, newServer("demo"))
	const ask, hint = "y or n", "press Enter, then y or n"
	for word, answer := range map[string]string{"any": "y", "maybe": "n", "i do not know": "y", "+y": "N"} {
		want := map[string]int{"y": exitOK, "n": exitTool, "N": exitTool}[answer]
		p := newPTY(t)
		o := p.run(func() {
			before, after := word[:strings.IndexAny(word, "yn")+1], word[strings.IndexAny(word, "yn")+1:]
			p.await(ask, before)
			p.await(hint, after+"\n")
			p.await("want y, n, or only Enter", answer)
		}, "call", url, "deploy", "environment=staging")
		if o.status != want || strings.Contains(o.stderr, hint) {
			t.Errorf("%s, then %s: exit code %d, want %d, and no second hint: %s", word, answer, o.status, want,
				o.stderr)
		}
	}
}

// The Enter key after an answer of one key does not answer the next question, unless it comes later.
func TestEnterAfterAKeyIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		in := newInput(r)
		send := func(text string) { go func() { _, _ = io.WriteString(w, text) }() }
		in.key = time.Now()
		send("\nnext\n")
		if line, err := in.readLine(t.Context()); line != "next" || err != nil {
			t.Errorf("got %q, %v, want next", line, err)
		}
		in.key = time.Now()
		time.Sleep(enterDelay)
		send("\n")
		if line, err := in.readLine(t.Context()); line != "" || err != nil {
			t.Errorf("got %q, %v, want an empty line", line, err)
		}
	})
}

// A read that a question has left pending can end before the next question: its bytes were typed
// before too.
func TestDiscardDropsAPendingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		in := newInput(r)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := in.readKey(ctx); err == nil {
			t.Error("readKey after the context has ended: no error, want one")
		}
		if _, err := io.WriteString(w, "y\n"); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		in.discard()
		go func() { _, _ = io.WriteString(w, "n") }()
		if key, err := in.readKey(t.Context()); key != 'n' || err != nil {
			t.Errorf("got %q, %v, want n", key, err)
		}
		w.Close()
		if key, err := in.readKey(t.Context()); err != io.EOF {
			t.Errorf("at the end: got %q, %v, want EOF", key, err)
		}
	})
}
