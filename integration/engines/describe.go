package engines

import (
	"context"
	"strings"

	"github.com/redis/rueidis"
)

// Describe says what kind of server answers and in which version, "redis 7.0.15" or "valkey 8.1.1", for test logs.
// Forks go on calling themselves Redis of the version they forked from for old clients' sake; those that name
// themselves as well go by that name.
func Describe(ctx context.Context, client rueidis.Client) (string, error) {
	info, err := Info(ctx, client, "server")
	if err != nil {
		return "", err
	}
	name := info["server_name"]
	if name == "" {
		name = "redis"
	}
	version := info[name+"_version"]
	if version == "" {
		version = info["redis_version"]
	}
	return name + " " + version, nil
}

// Info is one section of INFO as fields and values.
func Info(ctx context.Context, client rueidis.Client, section string) (map[string]string, error) {
	text, err := client.Do(ctx, client.B().Info().Section(section).Build()).ToString()
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if field, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[field] = value
		}
	}
	return info, nil
}
