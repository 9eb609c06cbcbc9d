package config

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"forebay/internal/bb"
	"forebay/internal/nss"
)

// storeList is one list of a Store under its name in the file.
type storeList struct {
	key  string
	list *[]string
}

func storeLists(s *Store) []storeList {
	return []storeList{{"endpoints", &s.Endpoints}, {"buckets", &s.Buckets}, {"profiles", &s.Profiles}, {"ca", &s.CA}, {"users", &s.Users}}
}

// parseStores reads a list of {endpoints, buckets, profiles, ca, users}, or its text in YAML. No
// text is no list.
func parseStores(target *[]Store, from any) error {
	if text, ok := from.(string); ok {
		from = nil
		if err := yaml.Unmarshal([]byte(text), &from); err != nil {
			return fmt.Errorf("it is not a list of stores")
		}
	}
	if from == nil || from == "" {
		*target = nil
		return nil
	}
	list, ok := from.([]any)
	if !ok {
		return fmt.Errorf("it is not a list of stores")
	}
	stores := make([]Store, len(list))
	for i, item := range list {
		values, ok := item.(map[string]any)
		if !ok {
			return fmt.Errorf("store %d is not {endpoints, buckets, profiles, ca, users}", i+1)
		}
		for key, value := range values {
			if err := parseStoreList(&stores[i], key, value); err != nil {
				return fmt.Errorf("%s of store %d: %w", key, i+1, err)
			}
		}
	}
	*target = stores
	return nil
}

// parseStoreList reads one list, or a single value that stands for a list of one.
func parseStoreList(s *Store, key string, value any) error {
	lists := storeLists(s)
	i := slices.IndexFunc(lists, func(l storeList) bool { return l.key == key })
	if i < 0 {
		return fmt.Errorf("the key is unknown")
	}
	items, ok := value.([]any)
	if !ok {
		items = []any{value}
	}
	list := make([]string, 0, len(items))
	for _, item := range items {
		switch item.(type) {
		case string, int:
			list = append(list, fmt.Sprint(item))
		default:
			return fmt.Errorf("it is not a list of patterns")
		}
	}
	*lists[i].list = list
	return nil
}

// formatStores is the inverse of parseStores.
func formatStores(stores []Store) string {
	if stores == nil {
		return `""`
	}
	items := make([]string, len(stores))
	for i := range stores {
		var parts []string
		for _, l := range storeLists(&stores[i]) {
			if *l.list == nil {
				continue
			}
			texts := make([]string, len(*l.list))
			for j, text := range *l.list {
				texts[j] = fmt.Sprintf("%q", text)
			}
			parts = append(parts, l.key+": ["+strings.Join(texts, ", ")+"]")
		}
		items[i] = "{" + strings.Join(parts, ", ") + "}"
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func (c *Config) validateStores(p *Problems) {
	for i := range c.Stores {
		s, name := &c.Stores[i], fmt.Sprintf("stores[%d].", i)
		for _, l := range storeLists(s) {
			p.check(*l.list == nil || len(*l.list) > 0 || l.key == "profiles", name+l.key, "", "an empty list fits nothing", "leave it out, or name patterns")
			if l.key == "users" {
				continue
			}
			for _, pattern := range *l.list {
				_, err := path.Match(pattern, "")
				p.check(err == nil && pattern != "", name+l.key, pattern, "it is not a pattern", "such as a*")
			}
		}
		for _, e := range s.Endpoints {
			scheme, host, _ := strings.Cut(e, "://")
			good := (scheme == "http" || scheme == "https") && host != "" && !strings.ContainsAny(host, "/@") && e == strings.ToLower(e)
			own := scheme == "https" && strings.HasSuffix(host, ":443") || scheme == "http" && strings.HasSuffix(host, ":80")
			p.check(!own, name+"endpoints", e, "it has the port that its scheme means anyway", "leave the port out")
			p.check(good, name+"endpoints", e, "it is not https:// or http:// and a host in small letters", "such as https://*.example.org:9000")
		}
		for _, file := range s.CA {
			absolute(p, name+"ca", file, true)
		}
		for _, user := range s.Users {
			p.check(strings.Trim(user, "@ ") != "", name+"users", user, "it is neither a user nor a group", "such as alice, 1001, @staff or @100")
		}
	}
}

// namesWithin bounds how long the system may take for all names.
const namesWithin = 10 * time.Second

// unknownUsers returns a warning for each name of a user or a group that is not in the system's database.
func (c *Config) unknownUsers(ctx context.Context) Problems {
	ctx, cancel := context.WithTimeout(ctx, namesWithin)
	defer cancel()
	var p Problems
	var names nss.Names
	for i, s := range c.Stores {
		for _, name := range s.Users {
			err := known(ctx, &names, name)
			if err == nil {
				continue
			}
			why, remedy := "the system has no such name, so the rule applies to nobody by it", "see getent passwd and getent group, or write a number"
			if bb.KindOf(err) != bb.NotFound {
				why, remedy = "the system's user database does not answer for the name; until it does, the rule applies to nobody by it", "check the system's user database"
			}
			p.add(fmt.Sprintf("stores[%d].users", i), name, why, remedy)
		}
	}
	return p
}

// known returns the reason why an entry of users matches no user, or nil if it matches one.
func known(ctx context.Context, names *nss.Names, entry string) (err error) {
	if group, ok := strings.CutPrefix(entry, "@"); ok {
		_, err = names.Group(ctx, group)
	} else if entry != "*" {
		_, err = names.User(ctx, entry)
	}
	return err
}
