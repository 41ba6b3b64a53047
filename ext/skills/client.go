package skills

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Limits for the lists of a server.
const (
	maxListed      = 10_000
	maxPages       = 1000
	maxListedBytes = 64 << 20
	maxCursor      = 64 << 10
)

// Offered reports whether the server of c serves skills, and whether their directories can be read
// with [ReadDir].
//
// Spec: skills.mdx, Capability Negotiation.
func Offered(c *mcp.Client) (skills, directories bool) {
	declared, ok := c.Capabilities().Extensions[ID]
	settings, isObject := declared.(map[string]any)
	return ok && isObject, ok && settings["directoryRead"] == true
}

func offered(c *mcp.Client, method string) error {
	switch ok, dirs := Offered(c); {
	case !ok:
		return fmt.Errorf("skills: %s: %w", method, ErrNotOffered)
	case method == methodDir && !dirs:
		return fmt.Errorf("skills: %s: %w", method, errNoDirectories)
	}
	return nil
}

// List returns the skills that the server lists, without reading their files. A server may have
// unlisted skills, which [Get] returns.
//
// For an invalid skill the iteration yields an error that is an [ErrInvalidEntry], and continues.
// Any other error ends it, such as [ErrNotOffered].
//
// Spec: skills.mdx, Listing Skills.
func List(ctx context.Context, c *mcp.Client) iter.Seq2[*Skill, error] {
	return func(yield func(*Skill, error) bool) {
		for raw, err := range pages(ctx, c, methodList, params{}, "skills") {
			if err != nil {
				yield(nil, err)
				return
			}
			s, err := decodeSkill(raw)
			if !yield(s, err) {
				return
			}
		}
	}
}

func decodeSkill(raw json.RawMessage) (*Skill, error) {
	s, err := parseSkill(raw)
	if err != nil {
		var entry struct {
			URI string `json:"uri"`
		}
		_ = jsonv2.Unmarshal(raw, &entry) // for the error message
		return nil, fmt.Errorf("skills: %.256q: %w: %w", entry.URI, ErrInvalidEntry, err)
	}
	return s, nil
}

// Get returns the current description of a skill, listed or not, by the URI of its SKILL.md. If the
// server offers no such skill, the error is an [*mcp.Error] with code -32602.
//
// Spec: skills.mdx, Getting a Skill.
func Get(ctx context.Context, c *mcp.Client, uri string) (*Skill, error) {
	if err := offered(c, methodGet); err != nil {
		return nil, err
	}
	raw, err := c.Do(ctx, methodGet, params{URI: &uri})
	if err != nil {
		return nil, fmt.Errorf("skills: get %.256q: %w", uri, err)
	}
	var res struct {
		Skill json.RawMessage `json:"skill"`
	}
	if err := jsonv2.Unmarshal(raw, &res); err != nil {
		return nil, invalid(methodGet, err)
	}
	s, err := decodeSkill(res.Skill)
	if err == nil && s.URI != uri {
		return nil, fmt.Errorf("skills: get %.256q: %w: the URI is %.256q", uri, ErrInvalidEntry, s.URI)
	}
	return s, err
}

// ReadDir returns the current files and directories of a directory of the server. Directories have
// the MIME type inode/directory. It is for dynamic skills, and for directories outside skills;
// [Skill.Files] contains the files of other skills. A directory may contain newer files than a
// [Skill]: [Loaded.Read] reads them only after [Get] returned a Skill that contains them.
//
// The iteration ends with the first error, such as [ErrNotOffered]. It is an [*mcp.Error] with code
// -32602 if the server offers no such directory. An entry that is not inside the directory is an
// error, too.
//
// Spec: skills.mdx, Reading Directories.
func ReadDir(ctx context.Context, c *mcp.Client, uri string) iter.Seq2[*mcp.Resource, error] {
	uri = strings.TrimSuffix(uri, "/")
	return func(yield func(*mcp.Resource, error) bool) {
		for raw, err := range pages(ctx, c, methodDir, params{URI: &uri}, "resources") {
			if err != nil {
				yield(nil, err)
				return
			}
			child := &mcp.Resource{}
			if err = jsonv2.Unmarshal(raw, child); err == nil {
				err = checkChild(uri, child.URI)
			}
			if err != nil {
				yield(nil, invalid(methodDir, err))
				return
			}
			if !yield(child, nil) {
				return
			}
		}
	}
}

func checkChild(dir, uri string) error {
	name, err := within(dir, uri)
	if err == nil && strings.Contains(name, "/") {
		err = fmt.Errorf("%.256q is not directly in the directory", uri)
	}
	return err
}

func pages(ctx context.Context, c *mcp.Client, method string, p params, key string) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		if err := offered(c, method); err != nil {
			yield(nil, err)
			return
		}
		seen := map[string]bool{}
		count, size := 0, 0
		for {
			raw, err := c.Do(ctx, method, p)
			if err != nil {
				yield(nil, fmt.Errorf("skills: %w", err))
				return
			}
			items, next, err := splitPage(raw, key)
			if err == nil {
				err = checkPage(next, seen, count+len(items), size+len(raw))
			}
			if err != nil {
				yield(nil, invalid(method, err))
				return
			}
			count, size = count+len(items), size+len(raw)
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == nil {
				return
			}
			seen[*next] = true
			p.Cursor = next
		}
	}
}

func splitPage(raw json.RawMessage, key string) (items []json.RawMessage, next *string, err error) {
	var page map[string]json.RawMessage
	if err := jsonv2.Unmarshal(raw, &page); err != nil {
		return nil, nil, err
	}
	if err := jsonv2.Unmarshal(page[key], &items); err != nil || items == nil {
		return nil, nil, fmt.Errorf("the member %q is not an array", key)
	}
	if cursor, ok := page["nextCursor"]; ok {
		if err := jsonv2.Unmarshal(cursor, &next); err != nil {
			return nil, nil, fmt.Errorf("nextCursor: %w", err)
		}
	}
	return items, next, nil
}

func checkPage(next *string, seen map[string]bool, count, size int) error {
	switch {
	case count > maxListed || size > maxListedBytes:
		return fmt.Errorf("the list has more than %d items or %d bytes", maxListed, maxListedBytes)
	case next == nil:
		return nil
	case len(*next) > maxCursor:
		return fmt.Errorf("nextCursor has %d bytes, want at most %d", len(*next), maxCursor)
	case seen[*next]:
		return errors.New("a nextCursor is repeated")
	case len(seen) == maxPages-1:
		return fmt.Errorf("the list has more than %d pages", maxPages)
	}
	return nil
}

func invalid(method string, err error) error {
	return &mcp.TransportError{Method: method, MayHaveRun: true, Err: fmt.Errorf("%w: %w", mcp.ErrInvalidResult, err)}
}
