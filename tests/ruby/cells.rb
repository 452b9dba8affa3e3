# frozen_string_literal: true

require "json"
require "tmpdir"
require_relative "time_limit"

# Runs the cells of a table, each in a forked child of a process that has loaded everything. A cell may hang, spin, crash or end
# its process without affecting the others.
#
# The table is a module with a method `cell(name)`, in a file of its own. The method's result is the value of the cell. If the
# result is :ends_by_itself, the process ends like a program.
module Cells
  # Idle seconds after which a cell counts as hung, and CPU seconds after which it counts as spinning. A cell takes milliseconds
  # of both.
  IDLE = 6
  CPU = 3
  # Number of hung or spinning cells after which the remaining ones are skipped.
  HANGS = 5

  # value: what the cell returned, or nil; ended: "exit 0", "signal KILL", "hangs", "spins"; out, err: what it wrote
  Result = Struct.new(:value, :ended, :out, :err) do
    def to_s = [value.nil? ? nil : "tells #{value.inspect}", ended, *(["writes #{out.inspect}"] unless out.empty?), *(["warns #{err[0, 600].inspect}"] unless err.empty?)].compact.join(", ")
  end

  class << self
    # Runs the cells of a table in a test.
    #
    # @param test [ReactorTest]
    # @param file [String] the table's
    # @param names [Array<String>]
    # @return [Hash{String => Result}]
    def run(test, file, names, env: {})
      code = "require #{__FILE__.dump}; require #{File.join(__dir__, file).dump}; Cells.conduct(#{File.basename(file).capitalize})"
      child = test.run_child("#{code}\n__END__", env: env.merge("REACTOR_CELLS" => names.to_json), within: 300)
      rows = child.out.lines.map { |line| JSON.parse(line) }.to_h { |name, *rest| [name, Result.new(*rest)] }
      names.to_h { |name| [name, rows[name] || (raise "no result of #{name}: #{child.status.inspect} #{child.err}")] }
    end

    # Runs in the process that forks.
    def conduct(table)
      to, $stdout = $stdout, STDERR
      hangs = 0
      JSON.parse(ENV.delete("REACTOR_CELLS")).each do |name|
        result = hangs < HANGS ? result(table, name) : Result.new(nil, "not run", "", "")
        hangs += 1 if %w[hangs spins].include?(result.ended)
        to.write("#{JSON.generate([name, *result.to_a])}\n")
      end
    end

    private

    def result(table, name)
      Dir.mktmpdir do |folder|
        files = Array.new(3) { |i| File.join(folder, i.to_s).tap { |path| File.write(path, "") } }
        pid = fork { ENV["TMPDIR"] = folder; perform(table, name, files) }
        _, status = TimeLimit.new(IDLE, pid).until { Process.waitpid2(pid, Process::WNOHANG) || (sleep 0.001; nil) }
        kill(pid) unless status
        texts = files.map { |path| File.read(path).scrub }
        Result.new(texts[0].empty? ? nil : JSON.parse(texts[0]), ended(status), texts[1], texts[2])
      end
    end

    def perform(table, name, files)
      Process.setpgid(0, 0)
      Process.setrlimit(:CPU, CPU, CPU + 2)
      Process.setrlimit(:CORE, 0, 0)
      results = File.open(files[0], "a")
      STDOUT.reopen(files[1], "a").sync = true
      STDERR.reopen(files[2], "a").sync = true
      $stdout, $stderr = STDOUT, STDERR
      value = table.cell(name)
      return if value == :ends_by_itself

      results.syswrite(JSON.generate(value))
      exit!(0)
    end

    def ended(status)
      return "hangs" unless status
      return "exit #{status.exitstatus}" if status.exited?

      Signal.signame(status.termsig).then { |signal| signal == "XCPU" ? "spins" : "signal #{signal}" }
    end

    # The processes of a hung cell.
    def kill(pid)
      Process.kill(:KILL, -pid)
      Process.waitpid(pid)
    end
  end
end
