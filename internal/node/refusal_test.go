package node

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What servers answer, word by word: 6.2 wraps what a command in a script was told, 7.0 adds the place behind it, 7.2 and
// Valkey say ACL refusals in other words. rueidis cuts "ERR " off.
func TestErrorRepliesProveWhatTheyProve(t *testing.T) {
	at7 := " script: 5d6f0a, on @user_script:32."
	at62 := "Error running script (call to f_5d6f0a): @user_script:32: @user_script: 32: "
	for _, row := range []struct {
		text   string
		want   errorReply
		reason string
	}{
		{"LOADING Redis is loading the dataset in memory", errorReply{true, everyStep, false}, "before the command"},
		{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", errorReply{true, everyStep, false}, "before the command"},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", errorReply{true, everyStep, false}, "before the command"},
		{"CLUSTERDOWN Hash slot not served", errorReply{true, everyStep, false}, "before the command"},
		{"NOAUTH Authentication required.", errorReply{true, noKind, true}, "before the command"},
		{"NOPERM this user has no permissions to run the 'evalsha' command or its subcommand", errorReply{true, noKind, true}, "before the command, 6.2"},
		{"NOPERM User default has no permissions to run the 'evalsha' command", errorReply{true, noKind, true}, "before the command, 7.0"},
		{"NOPERM No permissions to access a key", errorReply{true, noKind, true}, "perhaps of this key alone"},
		{"OOM command not allowed when used memory > 'maxmemory'." + at7, errorReply{true, votesAlone, false}, "first write"},
		{at62 + "-OOM command not allowed when used memory > 'maxmemory'.", errorReply{true, votesAlone, false}, "first write, 6.2"},
		{"OOM command not allowed when used memory > 'maxmemory'.", errorReply{true, votesAlone, false}, "before the command, or of the trial"},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk." + at7, errorReply{true, everyStep, false}, "first write"},
		{at62 + "-MISCONF Redis is configured to save RDB snapshots", errorReply{true, everyStep, false}, "first write, 6.2"},
		{"READONLY You can't write against a read only replica." + at7, errorReply{true, everyStep, false}, "first write"},
		{at62 + "-READONLY You can't write against a read only replica.", errorReply{true, everyStep, false}, "first write, 6.2"},
		{"NOREPLICAS Not enough good replicas to write." + at7, errorReply{true, everyStep, false}, "first write"},
		{"The user executing the script can't run this command or subcommand" + at7, errorReply{false, noKind, true}, "7.0: what came before has run"},
		{at62 + "The user executing the script can't access at least one of the keys mentioned in the command arguments", errorReply{false, noKind, true}, "6.2"},
		{"ACL failure in script: User redlock has no permissions to run the 'set' command" + at7, errorReply{false, noKind, true}, "7.2 and Valkey"},
		{"NOPERM ACL failure in script: User redlock has no permissions to run the 'set' command", errorReply{false, noKind, true}, "within a script, however it begins"},
		{"WRONGTYPE Operation against a key holding the wrong kind of value" + at7, errorReply{}, "the lock may have been set by then"},
		{"redlock: fencing token of redlock:fence:7 is exhausted" + at7, errorReply{}, "our own"},
		{"something new", errorReply{}, "nobody knows"},
	} {
		require.Equal(t, row.want, errorReplyOf(row.text), "%s: %s", row.reason, row.text)
	}
}

func TestTrialIsRead(t *testing.T) {
	const oom, misconf = "OOM command not allowed", "MISCONF Redis is configured"
	r, err := tried([]string{"", "", "INCRBY redlock:fence:7", "ERR value is not an integer or out of range"})
	require.NoError(t, err)
	require.Equal(t, refusals{}, r)

	r, err = tried([]string{oom, "", "SETRANGE redlock:fence:7", oom})
	require.NoError(t, err)
	require.Equal(t, refusals{ScriptAcquire: replyError(oom)}, r, "renewal and release go on")

	r, err = tried([]string{misconf, misconf})
	require.NoError(t, err)
	require.Equal(t, refuseAll(replyError(misconf)), r)

	denied := "ACL failure in script: User u has no permissions to run the 'set' command"
	r, err = tried([]string{"", "", "SET redlock:{}", denied, "ZADD redlock:queue:{}", "ERR value is not a valid float"})
	require.Equal(t, refusals{}, r, "a release may be allowed")
	require.True(t, Permanent(err))
	require.ErrorContains(t, err, "missing rights: SET redlock:{} ("+denied+")")
	require.NotContains(t, err.Error(), "ZADD")
}

// KeyDB says that it is Redis 6.3.4, and has no server_name: its pushes loop, whatever the version.
func TestKeyDBIsRecognised(t *testing.T) {
	run := "run_id:" + strings.Repeat("a", runIDLen) + "\r\nrole:master\r\n"
	s := parseInfo("# Server\r\nredis_version:6.3.4\r\nredis_mode:standalone\r\n" + run + "# KeyDB\r\nmvcc_depth:0\r\n")
	require.NoError(t, s.fault())
	require.Equal(t, keyDB, s.product)
	require.True(t, s.loopsScripts())
	require.False(t, parseInfo("redis_version:6.3.4\r\n"+run).loopsScripts())
	require.False(t, parseInfo("redis_version:7.2.4\r\nserver_name:valkey\r\n"+run).loopsScripts())
}
