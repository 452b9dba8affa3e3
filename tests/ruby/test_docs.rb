# frozen_string_literal: true

require_relative "helper"
require "tmpdir"

# Every code block of README.md and docs/ runs: each Ruby block in a child process that prints nothing on stderr.
class TestDocs < ReactorTest
  Block = Struct.new(:path, :line, :language, :needs, :code) do
    def name = "test_#{File.basename(path, ".md").tr("-", "_").downcase}_line_#{line}"
  end

  PAGES = [File.join(ROOT, "README.md"), *Dir[File.join(ROOT, "docs", "*.md")]].freeze

  BLOCKS = PAGES.flat_map do |path|
    text = File.read(path)
    text.to_enum(:scan, /^```(\w+)(?: (\w+))?\n(.*?)^```$/m).map do
      language, needs, code = $~.captures
      Block.new(path, $~.pre_match.count("\n") + 2, language, needs, code)
    end
  end

  BLOCKS.select { |block| block.language == "ruby" }.each do |block|
    define_method(block.name) { run_block(block) }
  end

  def run_block(block)
    skip_under_stress
    skip "#{block.needs} cannot be loaded (bin/setup --peers)" if block.needs && !loads?(block.needs)
    child = nil
    Dir.mktmpdir do |directory|
      path = File.join(directory, "example.rb")
      web do |port|
        File.write(path, block.code.gsub("8080", port.to_s)) # the port of the server in README.md
        child = run_child("load #{path.inspect}", within: TEST_TIMEOUT)
      end
    end
    assert_equal "", child.err, block.code
    assert_predicate child.status, :success?, "#{block.path}:#{block.line}\n#{block.code}\n#{child.out}"
    check_comments(block, child.out)
  end

  # A comment behind puts is the expected output, if it is plain text.
  def check_comments(block, out)
    block.code.scan(/^ *puts .*? # ([\w ]+)$/).flatten.each { |expected| assert_includes out, expected } unless block.code.include?("retry")
  end

  def loads?(library) = system({ "REACTOR_BACKEND" => BACKEND.to_s }, RbConfig.ruby, "-I", LIB, "-e", "require #{library.inspect}; require \"reactor/async\"", err: File::NULL)

  # Answers every request.
  def web
    server = TCPServer.new("127.0.0.1", 0)
    thread = Thread.new do
      loop do
        client = server.accept
        nil until client.gets.to_s.chomp.empty?
        client.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
      rescue Errno::ECONNRESET, Errno::EPIPE
        nil # the client has closed the connection
      ensure
        client&.close
      end
    end
    thread.report_on_exception = false
    yield server.addr[1]
  ensure
    thread.kill.join
    server.close
  end

  def test_every_block_has_a_known_language
    assert_operator BLOCKS.count { |block| block.language == "ruby" }, :>, 20
    assert_equal [], BLOCKS.map(&:language).uniq - %w[ruby sh text rust toml]
  end

  def test_named_commands_and_files_exist
    PAGES.each do |path|
      File.read(path).scan(%r{\bbin/([\w-]+)}).flatten.uniq.each { |name| assert_path_exists File.join(ROOT, "bin", name), path }
      File.read(path).scan(%r{\b((?:examples|lib|docs|tests|ext|src)/[\w/-]+\.\w+)}).flatten.uniq.each { |name| assert_path_exists File.join(ROOT, name), path }
    end
  end

  # `rake docs:patches` prints the table.
  def test_the_table_of_patches_is_up_to_date
    %w[README.md docs/patches.md].each do |path|
      table = File.read(File.join(ROOT, path))[/^<!-- made by rake docs:patches -->\n(.*?)^<!-- end of the table -->$/m, 1]
      assert_equal Reactor::Patches.to_markdown, table, path
    end
  end

  # Each test that docs/testing.md names for a promise is in the file that it names. `…` stands for what a loop inserts.
  def test_the_tests_of_the_promises_are_there
    rows = File.read(File.join(ROOT, "docs/testing.md"))[/^\| promise \| test \|\n.*?\n(.*)\z/m, 1].lines
    assert_operator rows.size, :>, 40
    rows.each do |row|
      file, *tests = row.split(" | ", 2).last.scan(/`([^`]+)`/).flatten
      source = File.read(File.join(ROOT, file.include?("/") ? file : "tests/ruby/#{file}"))
      refute_empty tests, row
      tests.each { |test| assert defines?(source, test), "#{file} has no #{test}" }
    end
  end

  def defines?(source, test)
    return source.match?(/^ *(?:def|fn) #{test}\b/) unless test.include?("…")

    source.match?(/define_method.*#{test.split("…", -1).map { |part| Regexp.escape(part) }.join("#\\{\\w+\\}")}/)
  end

  def test_relative_links_have_existing_targets
    PAGES.each do |path|
      File.read(path).scan(/\]\((?!https?:)([^)#]+)/).flatten.each { |link| assert_path_exists File.expand_path(link, File.dirname(path)), "#{path}: #{link}" }
    end
  end
end
