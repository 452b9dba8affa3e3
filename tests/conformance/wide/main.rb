# frozen_string_literal: true

require "etc"
require "fileutils"
require "rbconfig"
require "tmpdir"
require_relative "comparison"
require_relative "known"
require_relative "run"
require_relative "../../ruby/seeds"

# Runs CRuby's own test files, each test's body in a fiber of our scheduler, and compares them with a plain run.
# bin/check conformance calls this.
module Wide
  # The Ruby that runs, its sources, and a folder for logs.
  Place = Struct.new(:command, :source, :folder)

  class Main
    # Side by side: no more processes than processors, because CRuby's tests measure time.
    SIDE_BY_SIDE = [Etc.nprocessors, 2].min
    # Seconds of a test in plain Ruby.
    LIMIT = 90
    # In a fiber a test may take so many times as long as in plain Ruby, and so many seconds more.
    TIMES = 20
    MORE = 10
    # The seconds of a test that is known to differ, because many of these hang.
    MORE_OF_KNOWN = 3

    # @param part [Boolean] only the files that are marked as the part for bin/test
    # @param words [Array<String>] only the files with one of these words in their names
    # @param data [String] the folder with the files `files` and `known`
    # @param more [Numeric] see MORE
    # @param backends [Array<String>, nil] nil for all
    def initialize(source, part: false, words: [], data: __dir__, more: MORE, output: $stdout, backends: ENV["REACTOR_BACKEND"]&.split)
      @known = Known.read(File.join(data, "known"))
      @more = more
      @place = Place.new([RbConfig.ruby], File.expand_path(source))
      @files = select(File.join(data, "files"), part, words)
      @backends = backends || Seeds.backends
      @output = output
    end

    # @return [Boolean] whether every difference is known, and every known difference is there
    def run
      @started = now
      @plain = []
      @comparisons = []
      @problems = 0
      in_folder { run_all }
      summary
      @problems.zero? && @comparisons.sum { |comparison| comparison.tests.size }.positive?
    end

    private

    def select(list, part, words)
      rows = File.readlines(list, chomp: true).grep_v(/\A#/).map { |line| [line[0], line[1..].strip] }
      rows = rows.select { |mark, _| mark == "+" } if part
      names = rows.map(&:last).select { |name| File.exist?(File.join(@place.source, "test", name)) }
      words.empty? ? names : names.select { |name| words.any? { |word| name.include?(word) } }
    end

    # The logs are kept if WIDE_LOGS names a folder for them.
    def in_folder
      return Dir.mktmpdir("reactor-wide") { |folder| @place.folder = folder; yield } unless ENV["WIDE_LOGS"]

      @place.folder = File.expand_path(ENV["WIDE_LOGS"])
      FileUtils.mkdir_p(@place.folder)
      yield
    end

    # The plain run of a file, then its comparisons, one run after another. A run is followed by the runs it makes necessary.
    def run_all
      following = {}
      waiting = @files.map { |file| Run.new(@place, file, Run::PLAIN, limits: ->(_, pid) { TimeLimit.new(LIMIT, pid) }) }
      running = []
      until waiting.empty? && running.empty?
        running << waiting.shift.start while running.size < SIDE_BY_SIDE && waiting.any?
        sleep 0.02
        ended, running = running.partition(&:over?)
        ended.each { |run| waiting = next_runs(run, following) + waiting }
      end
    ensure
      running.each(&:abort)
    end

    def next_runs(run, following)
      if run.plain?
        @plain << run
        broken = run.outcomes[Run::OUTSIDE]
        problem "BROKEN   plain: #{run.file}: #{broken.status} #{broken.message}" if broken && broken.status != "passed"
        comparisons = @backends.map { |backend| compare(run, backend) }
      else
        comparisons = [following.fetch(run)]
      end
      comparisons.filter_map do |comparison|
        following_run = comparison.next_run
        following_run ? following[following_run] = comparison : ended(comparison)
        following_run
      end
    end

    def compare(plain, backend)
      limits = lambda do |id, pid|
        known = @known.mentions?(RUBY_VERSION, backend, "#{plain.file} #{id}")
        more = known ? [@more, MORE_OF_KNOWN].min : @more
        # A test that is known to hang may compute all the time.
        extension = known ? 1 : TimeLimit::MAX_EXTENSION
        TimeLimit.new((plain.outcomes[id]&.seconds || 0) * TIMES + more, pid, extension: extension)
      end
      explained = ->(difference) { @known.find(RUBY_VERSION, backend, difference) }
      expected = ->(test) { @known.expects?(RUBY_VERSION, backend, test) }
      new_run = ->(only) { Run.new(@place, plain.file, backend, limits: limits, only: only) }
      Comparison.new(plain, backend, explained: explained, expected: expected, new_run: new_run).tap { |comparison| @comparisons << comparison }
    end

    def ended(comparison)
      comparison.unknown.each { |difference| problem "UNKNOWN  #{difference}" }
      comparison.once.each { |difference| say "once     #{difference}" }
      comparison.found.each do |difference|
        line = @known.find(RUBY_VERSION, comparison.backend, difference)
        say "known    #{comparison.backend}: #{difference.test}: #{difference.outcome.status} (#{line})" if line
      end
      comparison.stale.each { |id| problem "STALE    #{comparison.backend}: #{comparison.file} #{id} no longer differs" }
    end

    def problem(text)
      @problems += 1
      say text
    end

    def say(text)
      @output.puts text
      @output.flush
    end

    def summary
      say "CRuby #{RUBY_VERSION}: #{@files.size} files in #{(now - @started).round} s"
      plain = @plain.flat_map { |run| run.outcomes.values }.group_by(&:status).transform_values(&:size)
      say "plain: #{plain.sort.map { |status, size| "#{size} #{status}" }.join(", ")}"
      @backends.each do |backend|
        of_backend = @comparisons.select { |comparison| comparison.backend == backend }
        tests, differ, unknown, once = %i[tests found unknown once].map { |list| of_backend.sum { |comparison| comparison.public_send(list).size } }
        say "#{backend}: #{tests - differ + once} of #{tests} as plain, #{differ - unknown - once} known differences, #{unknown} unknown, #{once} only once"
      end
      say "#{@problems} problems"
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end

if $PROGRAM_NAME == __FILE__
  part = ARGV.delete("--part")
  source, *words = ARGV
  exit Wide::Main.new(source, part: part, words: words).run
end
