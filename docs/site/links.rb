# frozen_string_literal: true

module Docs
  # Every link within a site leads to a file that is there, and to a place on it.
  class Links
    # Of rustdoc: places that its script makes when a page is opened.
    MADE_BY_SCRIPTS = /\A(?:\d+(?:-\d+)?)\z/

    def initialize(directory)
      @directory = directory
      @places = {}
    end

    # @raise [RuntimeError] naming each link that leads nowhere
    def check
      pages = Dir[File.join(@directory, "**", "*.html")]
      broken = pages.flat_map { |page| links(page).reject { |link| leads?(page, link) }.map { |link| "#{page.delete_prefix("#{@directory}/")}: #{link}" } }
      raise "links that lead nowhere:\n#{broken.uniq.join("\n")}" unless broken.empty?

      pages.size
    end

    private

    def links(page)
      File.read(page).gsub(%r{<script.*?</script>}m, "").scan(/<[a-z]+ [^>]*?(?:href|src|srcset)="([^"]*)"/).flatten.map { |link| CGI.unescapeHTML(link) }
          .reject { |link| link.empty? || link.match?(/\A(?:[a-z]+:|\/\/)/) }.uniq
    end

    def leads?(page, link)
      path, place = link.split("#", 2)
      path = path.to_s.split("?").first.to_s
      file = path.empty? ? page : File.expand_path(CGI.unescape(path), File.dirname(page))
      file = File.join(file, "index.html") if File.directory?(file)
      return false unless File.file?(file)

      place.nil? || place.empty? || !file.end_with?(".html") || place.match?(MADE_BY_SCRIPTS) || places(file).include?(CGI.unescape(place)) || places(file).include?(place)
    end

    def places(file) = @places[file] ||= File.read(file).scan(/\b(?:id|name)="([^"]*)"/).flatten.to_h { |place| [CGI.unescapeHTML(place), true] }
  end
end
